"""The server as a process of its own: started, signalled, killed, started again."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest
import websockets
from websockets.exceptions import InvalidStatus

from tests.integration.serving import PATIENCE, eventually


async def create(client: httpx2.AsyncClient) -> str:
    answer = await client.post("/api/v1/sandboxes", json={})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def test_it_says_where_it_is_and_how_to_sign_in(start: Any, folder: Path) -> None:
    server = start()
    async with server.client() as client:
        assert (await client.get("/readyz")).text == "ok"
        # The real server's loop is not the tests' one: what only one of them can do shows here.
        assert (await client.get("/api/v1/doctor")).status_code == 200
    secret = (folder / "admin-token").read_text().strip()
    assert (folder / "admin-token").stat().st_mode & 0o777 == 0o600
    assert (folder / "server.json").stat().st_mode & 0o777 == 0o644
    told = server.log.read_text()
    assert server.where["url"] in told
    assert str(folder / "admin-token") in told
    assert secret not in told
    assert secret not in (folder / "server.json").read_text()
    server.popen.send_signal(signal.SIGINT)
    assert await server.ends() == 0
    assert not (folder / "server.json").exists()


async def test_a_second_server_on_the_same_folder_is_refused(start: Any) -> None:
    first = start()
    await first.ready()
    second = start()
    assert await second.ends() != 0
    assert "data_dir_in_use" in second.log.read_text() or "another server" in second.log.read_text()
    assert first.popen.poll() is None


async def test_a_stop_ends_streams_and_leaves_sandboxes_running(start: Any) -> None:
    server = start()
    async with server.client() as client:
        sandbox = await create(client)
        base = f"/api/v1/sandboxes/{sandbox}"
        body = {
            "command": ["sh", "-c", "echo first; read x; echo $x"],
            "open_stdin": True,
            "background": True,
        }
        exec_id = (await client.post(f"{base}/execs", json=body)).json()["id"]
        lines: list[str] = []
        async with client.stream("GET", f"{base}/execs/{exec_id}/output") as output:
            async with client.stream("GET", "/api/v1/events") as events:
                async for line in output.aiter_lines():
                    lines.append(line)
                    if "first" in line:
                        server.popen.send_signal(signal.SIGTERM)
                async for _ in events.aiter_lines():
                    pass
        assert json.loads(lines[-1])["type"] == "output"
    assert await server.ends() == 0
    again = start()
    async with again.client() as client:
        assert (await client.get(base)).json()["state"] == "running"

        async def taken() -> bool:
            # The guest has to find the new server first.
            answer = await client.post(f"{base}/execs/{exec_id}/stdin", content=b"second\n")
            assert answer.status_code in (200, 503), answer.text
            return answer.status_code == 200

        await eventually(taken)
        answer = await client.get(f"{base}/execs/{exec_id}/wait", params={"timeout": PATIENCE})
        assert answer.json()["exit_code"] == 0
        raw = await client.get(f"{base}/execs/{exec_id}/output", params={"encoding": "raw"})
        assert raw.content == b"first\nsecond\n"
        assert (await client.delete(base)).status_code == 200


async def test_a_kill_loses_nothing(start: Any) -> None:
    server = start()
    async with server.client() as client:
        sandbox = await create(client)
        base = f"/api/v1/sandboxes/{sandbox}"
        body = {
            "command": ["sh", "-c", "for i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done; exit 9"],
            "background": True,
        }
        exec_id = (await client.post(f"{base}/execs", json=body)).json()["id"]
    server.popen.kill()
    await server.ends()
    again = start()
    async with again.client() as client:
        answer = await client.get(f"{base}/execs/{exec_id}/wait", params={"timeout": PATIENCE})
        assert answer.json()["exit_code"] == 9, answer.text
        raw = await client.get(f"{base}/execs/{exec_id}/output", params={"encoding": "raw"})
        assert raw.content == b"1\n2\n3\n4\n5\n6\n"
        assert (await client.delete(base)).status_code == 200
    again.popen.send_signal(signal.SIGTERM)
    assert await again.ends() == 0


async def test_a_taken_port_is_told(start: Any) -> None:
    listener = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        server = start(port=str(port))
        assert await server.ends() != 0
    assert f"127.0.0.1:{port} is taken" in server.log.read_text()


async def test_a_refused_websocket_is_no_error_of_the_server(start: Any) -> None:
    server = start()
    async with server.client() as client:
        url = str(client.base_url).replace("http", "ws", 1).rstrip("/")
        headers = {"Authorization": client.headers["Authorization"]}
    with pytest.raises(InvalidStatus) as caught:
        await websockets.connect(f"{url}/api/v1/sandboxes/nobody/attach", additional_headers=headers)
    assert caught.value.response.status_code == 404
    server.popen.send_signal(signal.SIGTERM)
    assert await server.ends() == 0
    assert "handshake" not in server.log.read_text()
