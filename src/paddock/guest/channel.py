"""One exec on one link: what it says goes to its Sink, what it is told goes out through its Channel."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import structlog

from paddock import errors
from paddock.guest import wire
from paddock.guest.wire import Exit, GuestViolation, Type

if TYPE_CHECKING:
    from paddock.guest.link import Guest

log = structlog.get_logger(__name__)

_MOST_EARLY_SIGNALS = 64


class Sink(Protocol):
    """Who hears of an exec. Called on the event loop; must not raise or block."""

    def started(self, pid: int, started_ns: int) -> None: ...

    def output(self, position: int, stream: int, data: bytes) -> None: ...

    def exited(self, exit: Exit) -> None: ...

    def lost(self) -> None:
        """The link is gone. Unless transient, the exec lives on: `Guest.resume` takes this or a new Sink."""


class Channel:
    """One exec on one link."""

    __slots__ = (
        "_ack_sent", "_ack_step", "_acked", "_credit", "_early_signals", "_guest", "_input_open", "_lock",
        "_released", "_started", "_waiter", "_window", "exit", "number", "position", "sink", "stdin_sent",
    )  # fmt: skip

    def __init__(
        self, guest: Guest, number: int, sink: Sink, *, window: int, ack_step: int, input_open: bool,
        position: int = 0, credit: int = wire.STDIN_CREDIT, stdin_sent: int = 0,
        early_signals: list[bytes] | None = None,
    ) -> None:  # fmt: skip
        self.number = number
        self.sink = sink
        self.position = position
        """Where the next output byte goes: everything before it has been given to the sink."""
        self.stdin_sent = stdin_sent
        self.exit: Exit | None = None
        self._guest = guest
        self._window = window
        self._ack_step = ack_step
        self._acked = self._ack_sent = position
        self._credit = credit
        self._input_open = input_open
        self._lock: asyncio.Lock | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._started = False
        # A process whose number the guest does not know yet cannot be signalled.
        self._early_signals: list[bytes] | None = early_signals
        self._released = False

    async def write(self, data: bytes) -> None:
        """Send input, in the order of calls; waits for credit. Gone when the exec or its input has ended."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            at = 0
            while at < len(data):
                await self._wait_for_credit()
                size = min(len(data) - at, self._credit, wire.MAX_PAYLOAD)
                part = data if size == len(data) else bytes(memoryview(data)[at : at + size])
                header = wire.HEADER.pack(size, self.number, Type.STDIN, 0, 0)
                self._guest._frames.send(header, part)
                self._credit -= size
                self.stdin_sent += size
                at += size
                await self._guest._frames.drain()

    async def _wait_for_credit(self) -> None:
        while True:
            if self._guest.lost:
                raise self._guest.gone()
            if self.exit is not None or self._released:
                raise errors.Gone("the process has ended", reason="exec_ended")
            if not self._input_open:
                raise errors.Gone("the process's input is closed", reason="stdin_closed")
            if self._credit:
                return
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    async def end_input(self) -> None:
        """Close the exec's input after what was written. May be repeated."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if self._input_open:
                self._input_open = False
                self._send(Type.STDIN, flags=wire.END_OF_INPUT)

    def signal(self, number: int, tree: bool = False) -> None:
        """Signal the process's group, or all of its tree. Before its start it is kept until then."""
        payload = wire.SIGNAL.pack(number, tree)
        if self._early_signals is None or self._guest.lost:
            self._send(Type.SIGNAL, payload)
        elif len(self._early_signals) < _MOST_EARLY_SIGNALS:
            self._early_signals.append(payload)

    def resize(self, rows: int, columns: int) -> None:
        self._send(Type.RESIZE, wire.RESIZE.pack(rows, columns))

    def kill(self, grace_ms: int) -> None:
        self._send(Type.KILL, wire.U32.pack(grace_ms))

    def ack(self, position: int) -> None:
        """Everything before `position` is safe. Cheap: small steps are gathered."""
        if position <= self._acked or self._released:
            return
        self._acked = min(position, self.position)
        if self._acked - self._ack_sent >= self._ack_step or self.exit is not None:
            self._send_ack()
        else:
            self._guest._ack_later(self)

    def _send_ack(self) -> None:
        if self._acked > self._ack_sent and not self._released and not self._guest.lost:
            self._ack_sent = self._acked
            self._guest._frames.send(wire.frame(Type.ACK, self.number, wire.U64.pack(self._acked)))

    def release(self) -> None:
        """The guest may forget this exec; nothing more is heard of it. Harmless when repeated or late."""
        if not self._released:
            self._released = True
            self._guest._release(self.number)
            self._wake()

    def _send(self, kind: Type, payload: bytes = b"", flags: int = 0) -> None:
        if self._guest.lost:
            raise self._guest.gone()
        if self.exit is None and not self._released:
            self._guest._frames.send(wire.frame(kind, self.number, payload, flags))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _on_started(self, payload: memoryview) -> None:
        if self._started or self.exit is not None:
            raise GuestViolation("STARTED for an exec that has been started before")
        self._started = True
        early, self._early_signals = self._early_signals, None
        for signal in early or ():
            self._send(Type.SIGNAL, signal)
        self.sink.started(*wire.STARTED.unpack(payload))

    def _on_output(self, position: int, stream: int, data: bytes) -> None:
        if self.exit is not None:
            raise GuestViolation("OUTPUT after EXIT")
        if position != self.position:
            raise GuestViolation(f"OUTPUT at {position} where {self.position} was due")
        if stream not in (wire.STDOUT, wire.STDERR):
            raise GuestViolation("OUTPUT of an unknown stream")
        self.position += len(data)
        if self.position - self._ack_sent > self._window:
            raise GuestViolation("more unacknowledged OUTPUT than the window allows")
        self.sink.output(position, stream, data)

    def _on_credit(self, more: int) -> None:
        self._credit += more
        if self._credit > wire.STDIN_CREDIT:
            raise GuestViolation("more CREDIT than was used")
        self._wake()

    def _on_exit(self, exit: Exit) -> None:
        if self.exit is not None:
            raise GuestViolation("EXIT twice")
        if exit.end != self.position or exit.stdout_bytes + exit.stderr_bytes != exit.end:
            raise GuestViolation(f"EXIT with end {exit.end} after {self.position} bytes of OUTPUT")
        self.exit = exit
        self._wake()
        self.sink.exited(exit)

    def _on_lost(self) -> None:
        self._wake()
        if self.exit is None and not self._released:
            try:
                self.sink.lost()
            except Exception:
                log.exception("sink_failed", channel=self.number)
