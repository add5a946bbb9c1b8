"""Reference 5's WebSocket: the events of a sandbox's execs, those that were and those that come."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.websockets import WebSocket, WebSocketDisconnect

from paddock.api.attach import chosen_protocol
from paddock.api.output import Wanted, output_events
from paddock.api.routing import Given
from paddock.api.sbx.routes import find, find_exec, refused_ingest
from paddock.api.sbx.shapes import code_of, rfc3339
from paddock.api.services import Services
from paddock.errors import NotFound, PaddockError
from paddock.sandboxes.model import Sandbox

routes = APIRouter(redirect_slashes=False)

SNAPSHOT = 50
"""So many of a sandbox's last execs are told again to whoever connects without naming one."""
_WAITING = 256


@routes.websocket("/sandboxes/{sandbox_id}/ingest")
async def ingest(websocket: WebSocket, sandbox_id: str) -> None:
    raise refused_ingest()


@routes.websocket("/sandboxes/{sandbox_id}/stream")
async def stream(
    websocket: WebSocket, services: Given, sandbox_id: str, exec_id: Annotated[str, Query()] = ""
) -> None:
    sandbox = find(services, sandbox_id)
    if exec_id:
        await find_exec(services, sandbox, exec_id)
    await websocket.accept(chosen_protocol(websocket))
    view = _View(websocket, services, sandbox, sandbox_id)
    # From here on, so that no exec falls between the snapshot and the live ones.
    news = services.events.follow(services.events.last_id, sandbox_id=sandbox.id)
    await view.serve(exec_id or None, news)


class _View:
    def __init__(self, websocket: WebSocket, services: Services, sandbox: Sandbox, shown_id: str) -> None:
        self._socket = websocket
        self._services = services
        self._sandbox = sandbox
        self._shown_id = shown_id
        # Bounded: execs that write faster than the client reads wait here, and lose nothing.
        self._frames: asyncio.Queue[str] = asyncio.Queue(_WAITING)
        self._seen: set[str] = set()

    async def serve(self, exec_id: str | None, news: AsyncIterator[Any]) -> None:
        """The end of an exec does not end it; the end of the sandbox, of the server or of the client does."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._until_gone())
                group.create_task(self._until_closing())
                group.create_task(self._send())
                group.create_task(self._follow(group, exec_id, news))
        except* _End as ends:
            end = ends.exceptions[0]
            assert isinstance(end, _End)
            if end.code:
                await self._socket.close(end.code)
        except* (WebSocketDisconnect, OSError, RuntimeError):
            pass  # The client has gone.

    async def _until_gone(self) -> None:
        while (await self._socket.receive())["type"] != "websocket.disconnect":
            pass
        raise _End(0)

    async def _until_closing(self) -> None:
        await self._services.closing.wait()
        raise _End(1012)

    async def _send(self) -> None:
        while True:
            await self._socket.send_text(await self._frames.get())

    async def _follow(self, group: asyncio.TaskGroup, exec_id: str | None, news: AsyncIterator[Any]) -> None:
        if exec_id is not None:
            self._take(group, exec_id)
        else:
            for exec_ in reversed(
                await self._services.sandboxes.list_execs(self._sandbox.id, limit=SNAPSHOT)
            ):
                self._take(group, exec_.id)
        async for event in news:
            if event.kind == "sandbox.deleted":
                raise _End(1000)
            if event.kind == "exec.started" and exec_id is None and event.exec_id is not None:
                self._take(group, event.exec_id)

    def _take(self, group: asyncio.TaskGroup, exec_id: str) -> None:
        if exec_id not in self._seen:
            self._seen.add(exec_id)
            group.create_task(self._tell(exec_id))

    async def _tell(self, exec_id: str) -> None:
        async for event in output_events(self._services, Wanted(self._sandbox.id, exec_id)):
            frame = await self._frame(exec_id, event)
            if frame is not None:
                await self._frames.put(frame)

    async def _frame(self, exec_id: str, event: dict[str, Any]) -> str | None:
        kind = event["type"]
        if kind not in ("start", "output", "exit"):
            return None
        frame: dict[str, Any] = {
            "sandbox_id": self._shown_id,
            "exec_id": exec_id,
            "seq": event["seq"],
            "type": kind,
        }
        if kind == "output":
            frame |= {"stream": event["stream"], "data": event["data"]}
        if kind == "exit":
            frame["exit_code"] = await self._exit_code(exec_id, event)
        moment = event.get("time")
        frame["time"] = rfc3339(moment if moment is not None else time.time())
        return json.dumps(frame, separators=(",", ":"), ensure_ascii=False)

    async def _exit_code(self, exec_id: str, event: dict[str, Any]) -> int | None:
        if event["exit_code"] is not None:
            return int(event["exit_code"])
        try:
            return code_of(await self._services.sandboxes.get_exec(self._sandbox.id, exec_id))
        except (NotFound, PaddockError):
            return None


class _End(Exception):
    def __init__(self, code: int) -> None:
        self.code = code
