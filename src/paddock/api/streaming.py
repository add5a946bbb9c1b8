"""Answers without end: output, files, events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any, TypeVar

import structlog
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paddock.api.services import Services
from paddock.errors import PaddockError, Unavailable

log = structlog.get_logger(__name__)
Value = TypeVar("Value")
HEARTBEAT = b": still here\n\n"


class Streaming(Response):
    """Sends what `content` yields until it ends, the client goes, or the server stops.

    An error after the first byte cannot be told any more: the connection is cut, so that nobody takes a part
    for the whole. Events have an end of their own, so a stream of them (`framed`) ends properly when the
    server stops.
    """

    def __init__(
        self,
        services: Services,
        content: AsyncIterator[bytes],
        media_type: str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        framed: bool = False,
        heartbeat: bool = False,
    ) -> None:
        self._services = services
        self._content = content
        self._framed = framed or heartbeat
        self._heartbeat = heartbeat
        self._busy = False
        self.status_code = status
        self.media_type = media_type
        self.background = None
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        pump = asyncio.create_task(self._pump(send))
        others = [asyncio.create_task(_gone(receive)), asyncio.create_task(self._services.closing.wait())]
        if self._heartbeat:
            others.append(asyncio.create_task(self._beat(send)))
        try:
            await asyncio.wait({pump, *others}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end(pump, *others)
        if pump.cancelled():
            if self._framed and self._services.closing.is_set():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif (error := pump.exception()) is not None and not isinstance(error, OSError):
            level = log.warning if isinstance(error, PaddockError) else log.error
            level("stream.broken", path=scope["path"], error=str(error) or type(error).__name__)

    async def _pump(self, send: Send) -> None:
        try:
            async for part in self._content:
                self._busy = True
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await aclose(self._content)

    async def _beat(self, send: Send) -> None:
        while True:
            self._busy = False
            await asyncio.sleep(self._services.settings.heartbeat_seconds)
            if not self._busy:
                await send({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})


async def aclose(content: object) -> None:
    close = getattr(content, "aclose", None)
    if close is not None:
        await close()


async def begun(content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same, with its first part already there: what fails at once can still be answered with an error."""
    first = await anext(content, None)

    async def whole() -> AsyncIterator[bytes]:
        try:
            if first is not None:
                yield first
            async for part in content:
                yield part
        finally:
            await aclose(content)

    return whole()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def while_open(
    services: Services,
    receive: Receive,
    work: Coroutine[Any, Any, Value],
    *,
    patience: float = 0.05,
) -> Value:
    """The result of `work`. A client that goes cancels it; when the server stops it is left to the server.

    Most calls end at once: only those that last longer than `patience` are worth the watching.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task,), timeout=patience)
        if not task.done():
            await _watch(services, receive, task)
    except asyncio.CancelledError:
        await _end(task)
        raise
    return task.result()


async def _watch(services: Services, receive: Receive, task: asyncio.Task[Any]) -> None:
    gone, closing = asyncio.create_task(_gone(receive)), asyncio.create_task(services.closing.wait())
    try:
        await asyncio.wait({task, gone, closing}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return
        if closing.done():
            services.left.add(task)
            raise shutting_down()
    finally:
        await _end(gone, closing)
    await _end(task)
    raise ClientDisconnect()


def shutting_down() -> Unavailable:
    return Unavailable("the server is stopping", reason="shutting_down", hint="try again in a moment")
