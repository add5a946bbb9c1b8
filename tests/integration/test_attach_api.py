"""Execs over WebSockets."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.integration.serving import Api, Box, eventually


def attach(box: Box, exec_id: str | None = None, query: str = "", **more: Any) -> connect:
    place = f"/execs/{exec_id}/attach" if exec_id else "/attach"
    return connect(
        f"{box.api.ws_url}{box.path}{place}{query}", additional_headers=box.api.headers(), proxy=None, **more
    )


async def drain(socket: ClientConnection) -> tuple[list[dict[str, Any]], dict[int, bytes]]:
    """Everything until the server closes."""
    events: list[dict[str, Any]] = []
    streams = {1: b"", 2: b""}
    position = 0
    try:
        while True:
            message = await socket.recv()
            if isinstance(message, str):
                events.append(json.loads(message))
                continue
            stream, place = struct.unpack_from(">BQ", message)
            assert place == position
            position += len(message) - 9
            streams[stream] += message[9:]
    except ConnectionClosed:
        assert socket.close_code == 1000
        return events, streams


async def test_a_command_is_started_fed_and_seen_to_its_end(box: Box) -> None:
    async with attach(box) as socket:
        await socket.send(
            json.dumps({"start": {"command": ["sh", "-c", "cat; echo done >&2; exit 4"], "open_stdin": True}})
        )
        assert json.loads(await socket.recv())["type"] == "started"
        await socket.send(b"\x00\xff")
        await socket.send(json.dumps({"type": "stdin", "data": "é"}))
        await socket.send(json.dumps({"type": "stdin", "data_base64": "AQI="}))
        await socket.send(json.dumps({"type": "eof"}))
        events, streams = await drain(socket)
    assert streams == {1: b"\x00\xff" + "é".encode() + b"\x01\x02", 2: b"done\n"}
    assert [event["type"] for event in events] == ["exit"]
    assert events[0]["exit_code"] == 4


async def test_output_as_json_and_from_the_middle(box: Box) -> None:
    exec_id = await box.start("sh", "-c", "printf onetwo")
    await box.ended(exec_id)
    async with attach(box, exec_id, "?mode=json&after=3") as socket:
        events, _ = await drain(socket)
    assert [event["type"] for event in events] == ["started", "output", "exit"]
    assert events[1]["data"] == "two"


async def test_leaving_lets_it_run_unless_asked_to_kill(box: Box) -> None:
    exec_id = await box.start("sleep", "1000")
    async with attach(box, exec_id) as socket:
        await socket.recv()
    answer = await box.api.http.get(f"{box.path}/execs/{exec_id}")
    assert answer.json()["state"] == "running"
    async with attach(box, exec_id, "?kill=1") as socket:
        await socket.recv()
    assert (await box.ended(exec_id))["state"] == "canceled"


async def test_signals_resize_and_cancel(box: Box) -> None:
    async with attach(box) as socket:
        command = ["sh", "-c", "stty size; read x; stty size; exec sleep 1000"]
        await socket.send(
            json.dumps(
                {"start": {"command": command, "terminal": {"rows": 11, "columns": 22}, "open_stdin": True}}
            )
        )
        await socket.recv()
        seen = b""
        while b"11 22" not in seen:
            seen += bytes(await socket.recv())[9:]
        await socket.send(json.dumps({"type": "resize", "rows": 33, "columns": 44}))
        await socket.send(b"\n")
        while b"33 44" not in seen:
            seen += bytes(await socket.recv())[9:]
        await socket.send(json.dumps({"type": "signal", "signal": "KILL", "tree": True}))
        events, _ = await drain_rest(socket)
    assert events[-1]["signal"] == 9


async def drain_rest(socket: ClientConnection) -> tuple[list[dict[str, Any]], bytes]:
    events, data = [], b""
    try:
        while True:
            message = await socket.recv()
            if isinstance(message, str):
                events.append(json.loads(message))
            else:
                data += message[9:]
    except ConnectionClosed:
        return events, data


async def test_nonsense_is_answered_and_does_no_harm(box: Box) -> None:
    exec_id = await box.start("cat", open_stdin=True)
    async with attach(box, exec_id) as socket:
        await socket.recv()
        for text in (
            "{",
            "[]",
            "{}",
            '{"type": "fly"}',
            '{"type": "stdin"}',
            '{"type": "stdin", "data_base64": "!"}',
            '{"type": "signal", "signal": "NOPE"}',
            '{"type": "resize", "rows": 0}',
        ):
            await socket.send(text)
            answer = json.loads(await socket.recv())
            assert (answer["type"], answer["reason"]) == ("error", "invalid"), text
        await socket.send(json.dumps({"type": "eof"}))
        events, _ = await drain_rest(socket)
    assert events[-1]["exit_code"] == 0


@pytest.mark.parametrize("first", ["{", '{"start": {"command": []}}', b"bytes", '{"start": {}}'])
async def test_a_bad_first_message_is_refused(box: Box, first: str | bytes) -> None:
    async with attach(box) as socket:
        await socket.send(first)
        answer = json.loads(await socket.recv())
        assert answer["type"] == "error"
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


async def test_refusals_before_the_upgrade_are_plain_http(box: Box) -> None:
    for query, exec_id, status in (("", "ex0000000000000000", 404), ("?after=-1", "ex0000000000000000", 400)):
        with pytest.raises(InvalidStatus) as refused:
            async with attach(box, exec_id, query):
                pass
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body or b"")["reason"]
    with pytest.raises(InvalidStatus) as refused:
        async with connect(f"{box.api.ws_url}{box.path}/attach", proxy=None):
            pass
    assert refused.value.response.status_code == 401


async def test_the_token_may_come_as_a_subprotocol(api: Api, box: Box) -> None:
    url = f"{api.ws_url}{box.path}/attach"
    secret = f"paddock.token.{api.admin}"
    for offered, taken in ((["paddock", secret], "paddock"), ([secret], secret)):
        async with connect(url, subprotocols=offered, proxy=None) as socket:  # type: ignore[arg-type]
            assert socket.subprotocol == taken
    observer = await api.token("watcher", "observer")
    with pytest.raises(InvalidStatus) as refused:
        async with connect(url, subprotocols=[f"paddock.token.{observer}"], proxy=None):  # type: ignore[list-item]
            pass
    assert refused.value.response.status_code == 403


async def test_the_servers_end_closes_the_socket_and_not_the_exec(api: Api, box: Box) -> None:
    exec_id = await box.start("sleep", "1000")
    async with attach(box, exec_id) as socket:
        await socket.recv()
        api.server.services.closing.set()
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1012
    assert (await api.server.services.sandboxes.get_exec(box.id, exec_id)).state.value == "running"


async def test_the_start_is_audited_by_its_exec(api: Api, box: Box) -> None:
    async with attach(box) as socket:
        await socket.send(json.dumps({"start": {"command": ["true"]}}))
        events, _ = await drain(socket)
    exec_id = events[0]["exec"]["id"]

    async def audited() -> bool:
        lines = (await api.http.get("/api/v1/audit")).json()["entries"]
        return any(line["target"] == f"{box.id}/{exec_id}" for line in lines)

    await eventually(audited)
