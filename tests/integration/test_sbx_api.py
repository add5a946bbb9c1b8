"""Reference 5's routes, as its own client uses them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import pytest_asyncio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.integration.serving import Api, eventually


@pytest_asyncio.fixture
async def sbx(api: Api) -> Api:
    answer = await api.http.post(
        "/sandboxes", json={"id": "demo", "env": {"GREETING": "hello"}, "command": None}
    )
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"id": "demo", "namespace": "sbx-demo", "pod_name": "sandbox"}
    return api


async def run(api: Api, *command: str, **more: Any) -> dict[str, Any]:
    answer = await api.http.post("/sandboxes/demo/exec", json={"command": list(command), **more})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_create_show_list_and_delete(sbx: Api) -> None:
    http = sbx.http
    again = await http.post("/sandboxes", json={"id": "demo", "env": {"GREETING": "ignored"}})
    assert (again.status_code, again.json()["id"]) == (200, "demo")
    answer = await http.get("/sandboxes/demo")
    assert answer.json() == {"id": "demo", "namespace": "sbx-demo", "pod_name": "sandbox", "phase": "Running"}
    assert (await http.get("/sandboxes/sbx-demo")).json()["id"] == "demo"
    made = (await http.post("/sandboxes", json={})).json()
    await run(sbx, "true")
    rows = (await http.get("/sandboxes")).json()
    assert [row["id"] for row in rows] == sorted(["demo", made["id"]])
    row = next(row for row in rows if row["id"] == "demo")
    assert (row["state"], row["allocated"]) == ("Running", "true")
    assert row["last_exec_time"].endswith("Z")
    assert next(row for row in rows if row["id"] != "demo")["last_exec_time"] == "-"
    answer = await http.delete("/sandboxes/demo")
    assert (answer.status_code, answer.json()) == (200, {"status": "deleted"})
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/exec")):
        answer = await http.request(method, f"/sandboxes/demo{path}", json={"command": ["true"]})
        assert (answer.status_code, list(answer.json())) == (404, ["error"])


async def test_bad_requests_are_explained_in_the_references_words(sbx: Api) -> None:
    http = sbx.http
    for body, message in (
        ({"id": "Bad_Id"}, "id must be DNS-1123 compatible (lowercase letters, numbers, '-')"),
        ({"id": "x" * 64}, "id must be DNS-1123 compatible (lowercase letters, numbers, '-')"),
    ):
        answer = await http.post("/sandboxes", json=body)
        assert (answer.status_code, answer.json()) == (400, {"error": message})
    assert (await http.post("/sandboxes", content=b"")).status_code == 400
    for body, message in (
        ({"command": []}, "command is required"),
        ({}, "command is required"),
        ({"command": ["true"], "timeout_seconds": 0}, "timeout_seconds must be > 0"),
        ({"command": ["true"], "timeout_seconds": 21601}, "timeout_seconds must be <= 21600"),
    ):
        answer = await http.post("/sandboxes/demo/exec", json=body)
        assert (answer.status_code, answer.json()) == (400, {"error": message})
    answer = await http.get("/sandboxes/demo/nothing")
    assert (answer.status_code, answer.text) == (404, "404 page not found")


async def test_names_are_not_ids(api: Api) -> None:
    made = (await api.http.post("/api/v1/sandboxes", json={"name": "kube-system"})).json()
    assert (await api.http.delete("/sandboxes/kube-system")).status_code == 404
    assert (await api.http.get(f"/sandboxes/{made['id']}")).status_code == 200


async def test_a_failing_command_keeps_its_output(sbx: Api) -> None:
    result = await run(sbx, "sh", "-c", "echo $GREETING; echo bad >&2; exit 3")
    assert result == {"stdout": "hello\n", "stderr": "bad\n", "status": "failed", "exit_code": 3}
    assert await run(sbx, "true") == {"status": "completed", "exit_code": 0}
    result = await run(sbx, "printf", "; & | < > ( ) * ? # ! ~ { }")
    assert result["stdout"] == "; & | < > ( ) * ? # ! ~ { }"
    result = await run(sbx, "sleep", "1000", timeout_seconds=1)
    assert (result["status"], result["exit_code"]) == ("timed_out", 124)


async def status(api: Api, exec_id: str) -> dict[str, Any]:
    answer = await api.http.get(f"/sandboxes/demo/execs/{exec_id}")
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


async def test_an_asynchronous_exec_is_watched_and_canceled(sbx: Api) -> None:
    http = sbx.http
    started = await run(sbx, "sleep", "1000", **{"async": True})
    exec_id = started["exec_id"]
    assert started == {"exec_id": exec_id, "status": "running"}
    assert len(exec_id) == 16
    assert int(exec_id, 16) >= 0
    shown = await status(sbx, exec_id)
    assert (shown["sandbox_id"], shown["status"], "exit_code" in shown, "finished_at" in shown) == (
        "demo",
        "running",
        False,
        False,
    )
    answer = await http.post(f"/sandboxes/demo/execs/{exec_id}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, "canceling")

    async def canceled() -> bool:
        return (await status(sbx, exec_id))["status"] == "canceled"

    await eventually(canceled)
    answer = await http.post(f"/sandboxes/demo/execs/{exec_id}/cancel")
    assert (answer.status_code, answer.json()) == (409, {"error": "exec is already in terminal state"})
    answer = await http.get("/sandboxes/demo/execs/0000000000000000")
    assert (answer.status_code, answer.json()) == (404, {"error": "exec not found"})


def stream(api: Api, query: str = "") -> connect:
    return connect(f"{api.ws_url}/sandboxes/demo/stream{query}", additional_headers=api.headers(), proxy=None)


async def until_exit(socket: ClientConnection, exec_id: str) -> list[dict[str, Any]]:
    events = []
    while True:
        event = json.loads(await asyncio.wait_for(socket.recv(), 30))
        if event["exec_id"] == exec_id:
            events.append(event)
            if event["type"] == "exit":
                return events


async def test_the_stream_tells_what_was_and_what_comes(sbx: Api) -> None:
    first = (await run(sbx, "sh", "-c", "printf é; exit 5", **{"async": True}))["exec_id"]
    async with stream(sbx) as socket:
        events = await until_exit(socket, first)
        assert [event["type"] for event in events] == ["start", "output", "exit"]
        assert (events[1]["stream"], events[1]["data"]) == ("stdout", "é")
        assert events[2]["exit_code"] == 5
        assert all(event["sandbox_id"] == "demo" and event["time"].endswith("Z") for event in events)
        second = (await run(sbx, "true", **{"async": True}))["exec_id"]
        events = await until_exit(socket, second)
        assert events[-1]["exit_code"] == 0
        await sbx.http.delete("/sandboxes/demo")
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(socket.recv(), 30)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000


async def test_the_stream_of_one_exec_has_only_that(sbx: Api) -> None:
    other = (await run(sbx, "echo", "other", **{"async": True}))["exec_id"]
    mine = (await run(sbx, "echo", "mine", **{"async": True}))["exec_id"]
    async with stream(sbx, f"?exec_id={mine}") as socket:
        events = [json.loads(await asyncio.wait_for(socket.recv(), 30)) for _ in range(3)]
    assert {event["exec_id"] for event in events} == {mine} != {other}
    with pytest.raises(InvalidStatus) as refused:
        async with stream(sbx, "?exec_id=0000000000000000"):
            pass
    assert refused.value.response.status_code == 404


async def test_nobody_can_forge_output(sbx: Api) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with connect(
            f"{sbx.ws_url}/sandboxes/demo/ingest", additional_headers=sbx.headers(), proxy=None
        ):
            pass
    assert refused.value.response.status_code == 410
    assert (await sbx.http.get("/sandboxes/demo/ingest")).status_code == 410


async def test_a_command_given_at_creation_runs(api: Api) -> None:
    answer = await api.http.post("/sandboxes", json={"id": "busy", "command": ["sleep", "1000"]})
    assert answer.status_code == 200
    execs = (await api.http.get("/api/v1/sandboxes/busy/execs")).json()["execs"]
    assert [one["command"] for one in execs] == [["sleep", "1000"]]
