"""Whole calls over a link: file calls and the guest's other built-ins, without a Sink of one's own.

`collect` for answers that fit into memory, `Stream` for those that need not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from paddock import errors
from paddock.guest import wire
from paddock.guest.link import Channel, Guest
from paddock.guest.wire import Exit, Start

MAX_STDERR = 64 << 10
STREAM_WINDOW = 1 << 20
_SMALL = 4 << 10
_JOINED = 64 << 10


@dataclass(frozen=True, slots=True)
class Collected:
    exit: Exit
    stdout: bytes
    stderr: bytes
    """At most its first MAX_STDERR bytes."""


class _Discard:
    """The Sink of an exec that nobody waits for any more: lets it end, then lets the guest forget it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def started(self, pid: int, started_ns: int) -> None:
        pass

    def output(self, position: int, stream: int, data: bytes) -> None:
        self._channel.ack(position + len(data))

    def exited(self, exit: Exit) -> None:
        self._channel.release()

    def lost(self) -> None:
        pass


def _abandon(channel: Channel) -> None:
    """Kill an exec, all of its tree, without waiting for it."""
    if channel.exit is not None:
        channel.release()
        return
    channel.sink = _Discard(channel)
    channel.ack(channel.position)
    try:
        channel.kill(0)
    except errors.Unavailable:
        # Without a link a transient exec is gone already.
        channel.release()


class Stream:
    """One transient exec as an async iterator of its stdout, with bounded memory: what has not been taken is
    not acknowledged, so the process has to wait. Use it as a context manager, or call `aclose`.
    """

    def __init__(self, guest: Guest, start: Start) -> None:
        self.exit: Exit | None = None
        self._stderr = bytearray()
        self._chunks: deque[tuple[int, bytes | bytearray]] = deque()
        self._lost = False
        self._waiter: asyncio.Future[None] | None = None
        self._channel = guest.start(
            replace(start, transient=True, window=min(start.window, STREAM_WINDOW)), self
        )
        self._gone = guest.gone

    @property
    def stderr(self) -> bytes:
        """The first MAX_STDERR bytes of it, so far."""
        return bytes(self._stderr)

    def started(self, pid: int, started_ns: int) -> None:
        pass

    def output(self, position: int, stream: int, data: bytes) -> None:
        if stream == wire.STDOUT:
            self._keep(position, data)
        else:
            self._stderr += data[: MAX_STDERR - len(self._stderr)]
            self._ack()
        self._wake()

    def _keep(self, position: int, data: bytes) -> None:
        """Join small pieces: each has a price of its own, and a guest may send a window of single bytes."""
        last = self._chunks[-1][1] if self._chunks else b""
        if isinstance(last, bytearray) and len(last) + len(data) <= _JOINED:
            last += data
        else:
            self._chunks.append((position, data if len(data) > _SMALL else bytearray(data)))

    def exited(self, exit: Exit) -> None:
        self.exit = exit
        self._channel.release()
        self._wake()

    def lost(self) -> None:
        self._lost = True
        self._wake()

    def _ack(self) -> None:
        self._channel.ack(self._chunks[0][0] if self._chunks else self._channel.position)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def changed(self) -> None:
        """Return when something has happened to it; raise when its link is lost."""
        if self._lost:
            raise self._gone()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def wait_started(self) -> None:
        """Return when there is output, stderr or an end: so a failure is known before a byte is passed on."""
        while not (self._chunks or self._stderr or self.exit):
            await self.changed()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self.exit is not None:
                raise StopAsyncIteration
            await self.changed()
        _, data = self._chunks.popleft()
        self._ack()
        return bytes(data)

    async def write(self, data: bytes) -> None:
        await self._channel.write(data)

    async def end_input(self) -> None:
        await self._channel.end_input()

    async def feed(self, source: AsyncIterator[bytes] | bytes) -> None:
        """Send all of `source`, then end of input. A process that ends before it has read all is no error."""
        try:
            if isinstance(source, bytes):
                await self._channel.write(source)
            else:
                async for data in source:
                    await self._channel.write(data)
            await self._channel.end_input()
        except errors.Gone:
            if self.exit is None:
                raise

    async def finish(self) -> Exit:
        """Drop the rest of stdout and wait for the end."""
        async for _ in self:
            pass
        assert self.exit is not None
        return self.exit

    async def aclose(self) -> None:
        """Kill the process if it still runs. May be repeated."""
        self._chunks.clear()
        _abandon(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def collect(
    guest: Guest,
    start: Start,
    *,
    stdin: AsyncIterator[bytes] | bytes | None = None,
    limit: int,
    timeout: float | None,
) -> Collected:
    """Run to the end. TooLarge when stdout has more than `limit` bytes, Timeout after `timeout` seconds;
    either way, and when cancelled, the process is killed.
    """
    wanted = replace(start, stdin=True) if stdin is not None else start
    try:
        async with asyncio.timeout(timeout) as deadline:
            async with Stream(guest, wanted) as stream:
                if stdin is None:
                    stdout = await _gather(stream, limit)
                else:
                    stdout = await _gather_and_feed(stream, limit, stdin)
    except TimeoutError:
        if not deadline.expired():
            raise
        raise errors.Timeout(
            f"the guest's call took longer than {timeout} s", reason="guest_call_timeout"
        ) from None
    assert stream.exit is not None
    return Collected(stream.exit, stdout, stream.stderr)


async def _gather(stream: Stream, limit: int) -> bytes:
    answer = bytearray()
    async for data in stream:
        if len(answer) + len(data) > limit:
            raise errors.TooLarge(f"the answer has more than {limit} bytes", reason="answer_too_large")
        answer += data
    return bytes(answer)


async def _gather_and_feed(stream: Stream, limit: int, stdin: AsyncIterator[bytes] | bytes) -> bytes:
    feeding = asyncio.ensure_future(stream.feed(stdin))
    gathering = asyncio.ensure_future(_gather(stream, limit))
    try:
        # The process may end while the source has more to give, and the other way round.
        done, _ = await asyncio.wait({feeding, gathering}, return_when=asyncio.FIRST_COMPLETED)
        if gathering not in done:
            feeding.result()
        return await gathering
    finally:
        for task in (feeding, gathering):
            task.cancel()
        await asyncio.gather(feeding, gathering, return_exceptions=True)
