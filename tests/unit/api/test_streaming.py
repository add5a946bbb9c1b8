"""Answers without end, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import ClientDisconnect

from paddock.api.services import Services
from paddock.api.streaming import HEARTBEAT, Streaming, begun, while_open
from paddock.errors import NotFound, Unavailable

SCOPE: dict[str, Any] = {"type": "http", "path": "/x"}


def services(heartbeat: float = 60.0) -> Services:
    settings = SimpleNamespace(heartbeat_seconds=heartbeat)
    return cast(Services, SimpleNamespace(closing=asyncio.Event(), left=set(), settings=settings))


class Client:
    """The other side of an ASGI call."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.got = asyncio.Event()
        self.messages: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.messages.append(dict(message))
        if message.get("body"):
            self.got.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)

    @property
    def complete(self) -> bool:
        return self.messages[-1].get("more_body") is False


class Source:
    """Yields its parts, then waits for ever or ends or fails; notes that it was closed."""

    def __init__(self, *parts: bytes, then: str | Exception = "end") -> None:
        self.parts, self.then, self.closed = parts, then, False

    async def __call__(self) -> AsyncIterator[bytes]:
        try:
            for part in self.parts:
                yield part
            if isinstance(self.then, Exception):
                raise self.then
            if self.then == "wait":
                await asyncio.Event().wait()
        finally:
            self.closed = True


async def test_all_parts_are_sent_and_the_end_is_told() -> None:
    client, source = Client(), Source(b"one", b"two")
    await Streaming(services(), source(), "text/plain")(SCOPE, client.receive, client.send)
    assert (client.body, client.complete, source.closed) == (b"onetwo", True, True)


async def test_a_client_that_goes_ends_it() -> None:
    client, source = Client(), Source(b"one", then="wait")
    task = asyncio.create_task(
        Streaming(services(), source(), "text/plain")(SCOPE, client.receive, client.send)
    )
    await client.got.wait()
    client.gone.set()
    await task
    assert (client.complete, source.closed) == (False, True)


@pytest.mark.parametrize("framed", [True, False])
async def test_the_servers_end_completes_only_what_has_an_end_of_its_own(framed: bool) -> None:
    ours, client, source = services(), Client(), Source(b"one", then="wait")
    response = Streaming(ours, source(), "text/plain", framed=framed)
    task = asyncio.create_task(response(SCOPE, client.receive, client.send))
    await client.got.wait()
    ours.closing.set()
    await task
    assert (client.complete, source.closed) == (framed, True)


@pytest.mark.parametrize("error", [Unavailable("guest gone"), RuntimeError("a bug")])
async def test_an_error_on_the_way_cuts_the_connection(error: Exception) -> None:
    client, source = Client(), Source(b"part", then=error)
    await Streaming(services(), source(), "text/plain")(SCOPE, client.receive, client.send)
    assert (client.body, client.complete) == (b"part", False)


async def test_silence_has_a_heartbeat() -> None:
    client, source = Client(), Source(then="wait")
    response = Streaming(services(0.01), source(), "text/event-stream", heartbeat=True)
    task = asyncio.create_task(response(SCOPE, client.receive, client.send))
    await asyncio.wait_for(client.got.wait(), 30)
    client.gone.set()
    await task
    assert client.body.startswith(HEARTBEAT)


async def test_what_fails_at_once_can_still_be_told() -> None:
    with pytest.raises(NotFound):
        await begun(Source(then=NotFound("nothing here"))())
    source = Source(b"one", b"two")
    assert [part async for part in await begun(source())] == [b"one", b"two"]
    assert source.closed
    assert [part async for part in await begun(Source()())] == []


async def test_quick_work_is_not_watched() -> None:
    async def work() -> int:
        return 7

    async def receive() -> Any:
        pytest.fail("nobody was to listen")

    assert await while_open(services(), receive, work()) == 7

    async def fail() -> int:
        raise NotFound("no")

    with pytest.raises(NotFound):
        await while_open(services(), receive, fail())


async def test_a_client_that_goes_cancels_the_work() -> None:
    client, canceled = Client(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            canceled.set()

    client.gone.set()
    with pytest.raises(ClientDisconnect):
        await while_open(services(), client.receive, work(), patience=0.001)
    assert canceled.is_set()


async def test_the_servers_end_leaves_the_work_to_the_server() -> None:
    ours, client = services(), Client()
    ours.closing.set()
    with pytest.raises(Unavailable) as caught:
        await while_open(ours, client.receive, asyncio.sleep(1000), patience=0.001)
    assert caught.value.reason == "shutting_down"
    (left,) = ours.left
    assert not left.done()
    left.cancel()


async def test_a_canceled_caller_takes_the_work_along() -> None:
    started, canceled = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            canceled.set()

    caller = asyncio.create_task(while_open(services(), Client().receive, work()))
    await started.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert canceled.is_set()
