"""A real server process that a test may kill, stop and start again, and what its clients do meanwhile."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import pytest

from tests.chaos.remains import listening_port, processes_of, remains_of, unmount_below
from tests.integration.serving import Process

PATIENCE = 60.0
CUT = (httpx2.HTTPError, OSError)
"""What a client sees of a server that goes away."""
Value = TypeVar("Value")


async def until(look: Callable[[], Awaitable[Value | None]], what: str, seconds: float = PATIENCE) -> Value:
    """What `look` gives, once it gives something true."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not (found := await look()):
        assert asyncio.get_running_loop().time() < deadline, f"this did not come about: {what}"
        await asyncio.sleep(0.03)
    return found


class Stage:
    """One data folder, the servers that run on it one after the other, and a client of whichever runs."""

    def __init__(self, **settings: str) -> None:
        # Users inside real sandboxes have to pass through, which pytest's own folders do not let them.
        self.folder = Path(tempfile.mkdtemp(prefix="paddock-chaos-"))
        self.folder.chmod(0o711)
        self.data = self.folder / "data"
        self.settings = {"default_runtime": "bubblewrap"} | settings
        self.server: Process | None = None
        self._url = ""
        self._http: httpx2.AsyncClient | None = None

    # -- the server

    @property
    def pid(self) -> int:
        assert self.server is not None
        return self.server.popen.pid

    @property
    def running(self) -> bool:
        return self.server is not None and self.server.popen.poll() is None

    def launch(self) -> Process:
        assert not self.running
        self.server = Process(self.data, **self.settings)
        return self.server

    async def up(self) -> None:
        server = self.launch()

        async def answers() -> bool:
            if server.popen.poll() is not None:
                pytest.fail(f"the server ended:\n{self.log}")
            # From the kernel: a full disk takes neither server.json nor a log.
            port = listening_port(server.popen.pid)
            if port is None:
                return False
            self._url = f"http://127.0.0.1:{port}"
            assert self._http is not None
            with contextlib.suppress(*CUT):
                return (await self._http.get(f"{self._url}/readyz")).status_code == 200
            return False

        await until(answers, "the server answers")

    def kill(self) -> None:
        assert self.server is not None
        self.server.popen.kill()
        self.server.popen.wait()

    async def restart(self) -> None:
        self.kill()
        await self.up()

    async def down(self) -> int:
        """As `paddock down` does it."""
        assert self.server is not None
        self.server.popen.terminate()
        return await asyncio.to_thread(self.server.popen.wait, PATIENCE)

    @property
    def log(self) -> str:
        log = self.folder / "data.log"
        return log.read_text(errors="replace")[-6000:] if log.is_file() else ""

    # -- its client

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Stage]:
        """For one test: with a server, and nothing left of its sandboxes when it ends."""
        async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as self._http:
            if not self.running:
                await self.up()
            yield self
            await self.clear()

    async def call(self, method: str, path: str, **more: Any) -> httpx2.Response:
        assert self._http is not None
        return await self._http.request(method, f"{self._url}/api/v1{path}", headers=self._headers, **more)

    def stream(self, path: str, **more: Any) -> Any:
        assert self._http is not None
        return self._http.stream("GET", f"{self._url}/api/v1{path}", headers=self._headers, **more)

    @property
    def url(self) -> str:
        return self._url

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def token(self) -> str:
        return (self.data / "admin-token").read_text().strip()

    async def create(self, **body: Any) -> Box:
        answer = await self.call("POST", "/sandboxes", json=body)
        assert answer.status_code == 201, answer.text
        return Box(self, answer.json()["id"])

    async def sandboxes(self) -> dict[str, str]:
        """The state of each, by id."""
        answer = await self.call("GET", "/sandboxes", params={"limit": 1000})
        assert answer.status_code == 200, answer.text
        return {one["id"]: one["state"] for one in answer.json()["sandboxes"]}

    async def clear(self) -> None:
        """Delete every sandbox; nothing of them stays."""
        if not self.running:
            await self.up()
        for sandbox in await self.sandboxes():
            answer = await self.call("DELETE", f"/sandboxes/{sandbox}")
            assert answer.status_code in (200, 404), (answer.text, self.log)
        await self.expect_only()

    async def expect_only(self, *known: str) -> None:
        """Nothing on this machine belongs to a sandbox of ours that is not one of `known`."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while left := remains_of(self.data, {*known}, self.pid):
            assert asyncio.get_running_loop().time() < deadline, f"left behind: {left}\n{self.log}"
            await asyncio.sleep(0.05)

    def close(self) -> None:
        """End the server as its owner would, and leave a clean machine whatever the tests did."""
        code: int | None = 0
        try:
            if self.server is not None and self.running:
                self.server.popen.terminate()
                code = self.server.popen.wait(PATIENCE)
        finally:
            left = remains_of(self.data, set(), None)
            for pid in processes_of(self.data):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            unmount_below(self.folder)
            log = self.log
            shutil.rmtree(self.folder, ignore_errors=True)
        # 120 is Python's own, for a log that could not be written.
        assert code in (0, 120), log
        assert not left, log


@dataclass(frozen=True)
class Box:
    """One sandbox, whichever server holds it."""

    stage: Stage
    id: str

    async def call(self, method: str, path: str = "", **more: Any) -> httpx2.Response:
        return await self.stage.call(method, f"/sandboxes/{self.id}{path}", **more)

    async def run(self, *command: str, **more: Any) -> dict[str, Any]:
        answer = await self.call("POST", "/execs", json={"command": list(command), **more})
        assert answer.status_code in (200, 202), answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def start(self, *command: str, **more: Any) -> str:
        return str((await self.run(*command, background=True, **more))["id"])

    async def answers(self) -> None:
        """A command comes to its end in it."""
        done = await self.run("echo", self.id)
        assert (done["exit_code"], done["stdout"]) == (0, f"{self.id}\n"), done

    async def state(self) -> str:
        answer = await self.call("GET")
        assert answer.status_code == 200, answer.text
        return str(answer.json()["state"])

    async def becomes(self, *states: str) -> dict[str, Any]:
        async def there() -> dict[str, Any] | None:
            answer = await self.call("GET")
            body: dict[str, Any] = answer.json()
            return body if body.get("state") in states else None

        return await until(there, f"{self.id} is {' or '.join(states)}")

    async def exec(self, exec_id: str) -> dict[str, Any]:
        answer = await self.call("GET", f"/execs/{exec_id}")
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def ended(self, exec_id: str) -> dict[str, Any]:
        answer = await self.call("GET", f"/execs/{exec_id}/wait", params={"timeout": PATIENCE - 10})
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def output(self, exec_id: str) -> bytes:
        answer = await self.call("GET", f"/execs/{exec_id}/output", params={"encoding": "raw"})
        assert answer.status_code == 200, answer.text
        return answer.content

    async def delete(self) -> None:
        answer = await self.call("DELETE")
        assert answer.status_code == 200, answer.text


@dataclass
class Follower:
    """A client that follows an exec's output over every loss of the server, from the last seq it has."""

    box: Box
    exec_id: str
    data: bytearray = field(default_factory=bytearray)
    exit: dict[str, Any] | None = None
    losses: int = 0

    async def follow(self) -> bytes:
        async with asyncio.timeout(PATIENCE):
            while self.exit is None:
                try:
                    await self._listen()
                except CUT:
                    self.losses += 1
                    await asyncio.sleep(0.05)
        return bytes(self.data)

    async def reached(self, count: int) -> None:
        async def enough() -> bool:
            return len(self.data) >= count or self.exit is not None

        await until(enough, f"{count} bytes of output, and there are {len(self.data)}")

    async def _listen(self) -> None:
        path = f"/sandboxes/{self.box.id}/execs/{self.exec_id}/output"
        params = {"encoding": "base64", "after": len(self.data)}
        async with self.box.stage.stream(path, params=params) as answer:
            if answer.status_code != 200:
                # Its guest has not come back yet.
                assert answer.status_code == 503, await answer.aread()
                return
            async for line in answer.aiter_lines():
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        if event["type"] == "output":
            self.data += base64.b64decode(event["data_base64"])
            assert event["seq"] == len(self.data), (event["seq"], len(self.data))
        elif event["type"] == "exit":
            self.exit = event
        else:
            assert event["type"] == "start" or event.get("reason") == "guest_lost", event
