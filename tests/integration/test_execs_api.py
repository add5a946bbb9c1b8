"""Execs over HTTP."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from typing import Any

from tests.integration.serving import PATIENCE, Api, Box, eventually


async def events_of(box: Box, exec_id: str, **params: Any) -> list[dict[str, Any]]:
    answer = await box.api.http.get(f"{box.path}/execs/{exec_id}/output", params=params)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_a_foreground_exec_answers_with_its_output_and_exit_code(box: Box) -> None:
    result = await box.run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (result["state"], result["exit_code"], result["stdout"], result["stderr"]) == (
        "failed",
        3,
        "out\n",
        "err\n",
    )
    assert (await box.run("true"))["exit_code"] == 0


async def test_output_that_is_not_text_comes_as_base64(box: Box) -> None:
    result = await box.run("printf", r"\377\001")
    assert result["encoding"] == "base64"
    assert base64.b64decode(result["stdout"]) == b"\xff\x01"


async def test_bad_requests_name_what_is_wrong(box: Box) -> None:
    for body, words in (
        (b"", "JSON"),
        (b"{", "JSON"),
        (b'{"command": "ls"}', "command"),
        (b'{"command": []}', "command"),
        (b'{"command": ["a\\u0000b"]}', "command.0"),
        (b'{"command": ["ls"], "nonsense": 1}', "nonsense"),
        (b'{"command": ["ls"], "timeout": -1}', "timeout"),
        (b'{"command": ["\xff"]}', "JSON"),
        (b'{"command": ["\\ud800"]}', "JSON"),
    ):
        answer = await box.api.http.post(f"{box.path}/execs", content=body)
        assert answer.status_code == 400, (body, answer.text)
        assert answer.json()["reason"] == "invalid"
        assert words in answer.json()["error"], (body, answer.text)


async def test_unknown_sandboxes_and_execs_are_404_at_once(box: Box) -> None:
    http = box.api.http
    answer = await http.post("/api/v1/sandboxes/nobody/execs", json={"command": ["true"]})
    assert (answer.status_code, answer.json()["reason"]) == (404, "sandbox_not_found")
    for call in ("", "/wait", "/output"):
        for exec_id in ("ex0000000000000000", "..", "a%00b", "a b"):
            answer = await http.get(f"{box.path}/execs/{exec_id.replace('..', '%2e%2e')}{call}")
            assert answer.status_code == 404, answer.url
    answer = await http.post(f"{box.path}/execs/ex0000000000000000/cancel")
    assert (answer.status_code, answer.json()["reason"]) == (404, "exec_not_found")


async def test_a_body_beyond_the_limit_is_refused_however_it_comes(box: Box) -> None:
    big = b'{"command": ["' + b"x" * (2 << 20) + b'"]}'
    answer = await box.api.http.post(f"{box.path}/execs", content=big)
    assert (answer.status_code, answer.json()["reason"]) == (413, "too_large")

    async def pieces() -> Any:
        for start in range(0, len(big), 65536):
            yield big[start : start + 65536]

    answer = await box.api.http.post(f"{box.path}/execs", content=pieces())
    assert (answer.status_code, answer.json()["reason"]) == (413, "too_large")


async def test_a_background_exec_is_started_awaited_and_listed(box: Box) -> None:
    answer = await box.api.http.post(
        f"{box.path}/execs",
        json={"command": ["sh", "-c", "read x; exit $x"], "open_stdin": True, "background": True},
    )
    assert answer.status_code == 202
    exec_id = answer.json()["id"]
    assert answer.headers["location"] == f"{box.path}/execs/{exec_id}"
    wait = await box.api.http.get(f"{box.path}/execs/{exec_id}/wait", params={"timeout": 0.05})
    assert (wait.status_code, wait.json()["reason"]) == (504, "timeout")
    answer = await box.api.http.get(f"{box.path}/execs", params={"state": "running"})
    assert [one["id"] for one in answer.json()["execs"]] == [exec_id]
    answer = await box.api.http.post(f"{box.path}/execs/{exec_id}/stdin", content=b"7\n")
    assert answer.json()["received"] == 2
    assert (await box.ended(exec_id))["exit_code"] == 7
    answer = await box.api.http.get(f"{box.path}/execs", params={"state": "running"})
    assert answer.json()["execs"] == []


async def test_any_amount_of_stdin_streams_in(box: Box) -> None:
    exec_id = await box.start("sha256sum", open_stdin=True)
    data = bytes(range(256)) * 4096 * 5

    async def pieces() -> Any:
        for start in range(0, len(data), 300_000):
            yield data[start : start + 300_000]

    answer = await box.api.http.post(f"{box.path}/execs/{exec_id}/stdin", params={"end": 1}, content=pieces())
    assert answer.status_code == 200, answer.text
    assert answer.json()["received"] == len(data)
    await box.ended(exec_id)
    events = await events_of(box, exec_id)
    assert events[1]["data"].startswith(hashlib.sha256(data).hexdigest())


async def test_output_comes_as_events_that_can_be_resumed_anywhere(box: Box) -> None:
    exec_id = await box.start("sh", "-c", "printf one; printf two >&2; printf three")
    await box.ended(exec_id)
    events = await events_of(box, exec_id)
    assert events[0]["type"] == "start"
    assert events[-1] | {"time": 0} == {
        "seq": 12,
        "type": "exit",
        "exit_code": 0,
        "signal": None,
        "state": "completed",
        "time": 0,
    }
    text = {"stdout": "", "stderr": ""}
    for event in events[1:-1]:
        assert event["offset"] == len(text[event["stream"]])
        text[event["stream"]] += event["data"]
    assert text == {"stdout": "onethree", "stderr": "two"}
    for event in events[1:]:
        rest = await events_of(box, exec_id, after=event["seq"])
        assert rest == [later for later in events if later["seq"] > event["seq"]]
    assert [e["stream"] for e in await events_of(box, exec_id, stream="stderr") if e["type"] == "output"] == [
        "stderr"
    ]


async def test_text_never_splits_a_character_and_raw_keeps_every_byte(box: Box) -> None:
    script = (
        r"printf 'a\303'; sleep 0.2; printf '\251b\360\237'; sleep 0.2; printf '\230\200\377'; printf '\303'"
    )
    exec_id = await box.start("sh", "-c", script)
    events = await events_of(box, exec_id)
    assert "".join(e["data"] for e in events if e["type"] == "output") == "aéb😀\ufffd\ufffd"
    raw = await box.api.http.get(f"{box.path}/execs/{exec_id}/output", params={"encoding": "raw"})
    assert raw.headers["content-type"] == "application/octet-stream"
    assert raw.content == "aéb😀".encode() + b"\xff\xc3"
    coded = await events_of(box, exec_id, encoding="base64")
    assert b"".join(base64.b64decode(e["data_base64"]) for e in coded if e["type"] == "output") == raw.content


async def test_output_is_followed_live_as_server_sent_events(box: Box) -> None:
    exec_id = await box.start("sh", "-c", "echo first; read x; echo second", open_stdin=True)
    frames: list[dict[str, str]] = []
    async with box.api.http.stream(
        "GET", f"{box.path}/execs/{exec_id}/output", headers={"Accept": "text/event-stream"}
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        frame: dict[str, str] = {}
        async for line in answer.aiter_lines():
            if line:
                key, _, value = line.partition(": ")
                frame[key] = value
                continue
            frames.append(frame)
            if json.loads(frame["data"]).get("data") == "first\n":
                await box.api.http.post(f"{box.path}/execs/{exec_id}/stdin", content=b"\n")
            frame = {}
    assert [frame["event"] for frame in frames] == ["start", "output", "output", "exit"]
    answer = await box.api.http.get(
        f"{box.path}/execs/{exec_id}/output",
        headers={"Accept": "text/event-stream", "Last-Event-ID": frames[1]["id"]},
    )
    assert "first" not in answer.text
    assert "second" in answer.text


async def test_large_output_arrives_whole(box: Box) -> None:
    size = 20 << 20
    exec_id = await box.start("head", "-c", str(size), "/dev/zero")
    received = 0
    async with box.api.http.stream(
        "GET", f"{box.path}/execs/{exec_id}/output", params={"encoding": "raw", "stream": "stdout"}
    ) as answer:
        async for part in answer.aiter_raw():
            received += len(part)
    assert received == size


async def test_cancel_signal_and_their_refusals(box: Box) -> None:
    http = box.api.http
    exec_id = await box.start("sleep", "1000")
    answer = await http.post(f"{box.path}/execs/{exec_id}/signal", json={"signal": "nonsense"})
    assert answer.status_code == 400
    answer = await http.post(f"{box.path}/execs/{exec_id}/signal", json={"signal": "TERM"})
    assert answer.status_code == 200
    assert (await box.ended(exec_id))["signal"] == 15
    exec_id = await box.start("sleep", "1000")
    answer = await http.post(f"{box.path}/execs/{exec_id}/cancel", json={"grace": 0})
    assert (answer.status_code, answer.json()["state"]) == (200, "canceling")
    assert (await box.ended(exec_id))["state"] == "canceled"
    answer = await http.post(f"{box.path}/execs/{exec_id}/cancel")
    assert (answer.status_code, answer.json()["reason"]) == (409, "exec_ended")
    answer = await http.post(f"{box.path}/execs/{exec_id}/resize", json={"rows": 10, "columns": 20})
    assert answer.status_code == 409


async def test_a_caller_who_leaves_takes_the_foreground_exec_along(box: Box) -> None:
    task = asyncio.create_task(box.run("sleep", "1000", id="left-behind-1"))

    async def running() -> bool:
        return (await box.api.http.get(f"{box.path}/execs/left-behind-1")).status_code == 200

    await eventually(running)
    task.cancel()
    await asyncio.wait([task])
    assert (await box.ended("left-behind-1"))["state"] == "canceled"


async def test_a_timeout_keeps_what_was_said(box: Box) -> None:
    result = await box.run("sh", "-c", "echo partial; sleep 1000", timeout=1.0)
    assert (result["state"], result["stdout"]) == ("timed_out", "partial\n")


async def test_closing_server_sends_waiting_callers_away_and_leaves_the_exec(api: Api, box: Box) -> None:
    exec_id = await box.start("sleep", "1000")
    waiting = asyncio.create_task(
        api.http.get(f"{box.path}/execs/{exec_id}/wait", params={"timeout": PATIENCE})
    )
    foreground = asyncio.create_task(
        api.http.post(f"{box.path}/execs", json={"command": ["sleep", "1000"], "id": "foreground-1"})
    )

    async def both_run() -> bool:
        return (
            len((await api.http.get(f"{box.path}/execs", params={"state": "running"})).json()["execs"]) == 2
        )

    await eventually(both_run)
    # Longer than the patience of a call that is not yet watched.
    await asyncio.sleep(0.2)
    api.server.services.closing.set()
    for answer in await asyncio.gather(waiting, foreground):
        assert (answer.status_code, answer.json()["reason"]) == (503, "shutting_down")
    still = await api.server.services.sandboxes.get_exec(box.id, "foreground-1")
    assert still.state.value == "running"
