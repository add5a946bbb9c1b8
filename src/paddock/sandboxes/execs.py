"""A running exec on the host's side: hears its guest, keeps its output, wakes those who wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import structlog

from paddock.errors import Conflict, Gone, Unavailable
from paddock.guest.link import Channel
from paddock.guest.wire import Exit
from paddock.sandboxes.execlog import Chunk, Gap, LogReader, OutputLog
from paddock.sandboxes.execution import conclude
from paddock.sandboxes.model import Exec, ExecState

log = structlog.get_logger(__name__)

MOST_AHEAD = 16 << 20
"""A process may run this far ahead of a client that follows its output; then it waits."""
PATIENCE = 30.0
"""A follower who takes nothing for so long no longer holds the process back; it may meet a gap."""
RETRY_SECONDS = 0.5


class Follower:
    """One reader of a running exec's output."""

    __slots__ = ("moved_at", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.moved_at = time.monotonic()


class LiveExec:
    """The Sink of one exec. Lives until its end is committed."""

    def __init__(
        self, record: Exec, output: OutputLog, finish: Callable[[LiveExec], None], *, stored: bool
    ) -> None:
        self.record = record
        self.log = output
        self.stored = stored
        """Whether the store has a row of it."""
        self.has_input = False
        """Whether input came with its request, which is kept beside its log."""
        self.channel: Channel | None = None
        self.ended = False
        self._finish = finish
        self._waiters: list[asyncio.Future[None]] = []
        self._pending: list[tuple[int, bytes]] = []
        """Output that the disk did not take. The guest still has it; its window bounds this list."""
        self._followers: set[Follower] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._exit: Exit | None = None

    def started(self, pid: int, started_ns: int) -> None:
        self.record.pid = pid
        self.record.started_at = started_ns / 1e9
        self._wake()

    def output(self, position: int, stream: int, data: bytes) -> None:
        if self._pending:
            self._pending.append((stream, data))
            return
        try:
            self.log.append(stream, data)
        except OSError as error:
            self._hold(stream, data, error)
        else:
            self._ack()
            self._wake()

    def exited(self, exit: Exit) -> None:
        if self.ended:
            return
        self._exit = exit
        if not self._pending:
            self._conclude()

    def lost(self) -> None:
        self.channel = None

    def resume_at(self) -> int:
        """Forget what is not safe, and say from where on a returned guest has to give its output again."""
        if not self.ended:
            self._pending.clear()
            self._exit = None
            self.log.rewind()
        return self.log.end

    def resumed(self, channel: Channel) -> None:
        self.channel = channel
        self._wake()

    def _hold(self, stream: int, data: bytes, error: OSError) -> None:
        log.warning("output_not_kept", exec=self.record.id, error=str(error))
        self._pending.append((stream, data))
        self._again()

    def _again(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self._timer = None
        try:
            while self._pending:
                self.log.append(*self._pending[0])
                self._pending.pop(0)
        except OSError:
            self._again()
        self._ack()
        self._wake()
        if not self._pending and self._exit is not None and not self.ended:
            self._conclude()

    def _conclude(self) -> None:
        assert self._exit is not None
        conclude(self.record, self._exit)
        self.end()

    def end(self) -> None:
        """The record says how it ended; nothing more comes."""
        if self.ended:
            return
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.record.stdout_bytes, self.record.stderr_bytes = self.log.stdout, self.log.stderr
        self.record.dropped_bytes = self.log.start
        self.log.close()
        self._wake()
        self._finish(self)

    def abandon(self, reason: str, error: str) -> None:
        """Its process is gone and cannot tell how it ended."""
        if self.ended:
            return
        canceling = self.record.state is ExecState.CANCELING
        self.record.state = ExecState.CANCELED if canceling else ExecState.FAILED
        self.record.reason, self.record.error = reason, error
        self.record.finished_at = time.time()
        self._pending.clear()
        self.end()

    def _ack(self) -> None:
        if self.channel is None:
            return
        safe = self.log.durable
        if self._followers:
            now = time.monotonic()
            slowest = min((f.position for f in self._followers if now - f.moved_at < PATIENCE), default=safe)
            ahead = min(MOST_AHEAD, self.log.limit // 4)
            if slowest + ahead < safe:
                safe = slowest + ahead
                self._again()
        self.channel.ack(safe)

    def _wake(self) -> None:
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def changed(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    async def wait(self) -> None:
        while not self.ended:
            await self.changed()

    async def follow(self, after: int) -> AsyncIterator[Chunk | Gap]:
        """Output behind `after`, until the exec has ended and all of it was given."""
        reader, follower = LogReader(self.log, after), Follower(after)
        self._followers.add(follower)
        try:
            while True:
                for piece in reader.read():
                    yield piece
                    follower.position, follower.moved_at = reader.position, time.monotonic()
                if reader.position < self.log.end:
                    await asyncio.sleep(0)
                elif self.ended:
                    return
                else:
                    self._ack()
                    await self.changed()
        finally:
            self._followers.discard(follower)
            reader.close()
            if not self.ended:
                self._ack()

    def require_channel(self) -> Channel:
        if self.ended:
            raise Conflict("the exec has ended", reason="exec_ended")
        if self.channel is None:
            raise Unavailable(
                "the link to the sandbox's guest is down", reason="guest_lost", hint="try again"
            )
        return self.channel

    async def write(self, data: bytes) -> None:
        channel = self.require_channel()
        try:
            await channel.write(data)
        finally:
            self.record.stdin_bytes = channel.stdin_sent

    async def feed(self, data: bytes, *, end: bool) -> None:
        """Give it all of its input, over as many links as that takes. A process that ends without taking it
        is no error.
        """
        while not self.ended:
            try:
                await self.write(data[self.require_channel().stdin_sent :])
                if end:
                    await self.require_channel().end_input()
                return
            except (Gone, Conflict):
                return
            except Unavailable:
                if self.channel is None:
                    await self.changed()
                else:
                    await asyncio.sleep(RETRY_SECONDS)
