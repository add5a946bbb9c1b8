"""One live link to a guest.

When the link is gone the execs' Sinks are told, and `dial.Dial` makes the next Guest from the same process
inside. Everything runs on the event loop's thread; nothing here makes a task.

The guest is untrusted. Whatever it sends, memory stays bounded: output by each exec's window, input by
credit, everything else by being expected at most once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import time
from typing import Self

import structlog

from paddock import errors
from paddock.guest import wire
from paddock.guest.channel import Channel, Sink
from paddock.guest.frames import FrameSocket
from paddock.guest.wire import Exit, GuestViolation, Inventory, Start, Type

__all__ = ["Channel", "Guest", "GuestViolation", "Sink"]

log = structlog.get_logger(__name__)

ACK_IDLE_SECONDS = 0.05
"""How long a small acknowledgement may wait for more."""
MAX_INVENTORY = 4096
MAX_INVENTORY_METADATA = 16 << 20
BUSY = 8 << 20
"""Queued bytes above which no exec is started."""

_STARTED, _EXIT, _CREDIT = int(Type.STARTED), int(Type.EXIT), int(Type.CREDIT)


class Guest:
    """Use `boot` or `dial.Dial.accept`."""

    def __init__(self, sock: socket.socket, *, boot_id: bytes, first_channel: int) -> None:
        loop = asyncio.get_running_loop()
        self.boot_id = boot_id
        self.inventory: list[Inventory] = []
        """What a returned guest has kept. Each entry wants `resume` or `forget`."""
        self.failure: Exception | None = None
        """Why the link ended, where it was not closed by one side in order."""
        self.closed: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._first = not boot_id
        self._next = first_channel
        self._ready: asyncio.Future[None] | None = loop.create_future()
        self._channels: dict[int, Channel] = {}
        self._unanswered: set[int] = set()
        self._metadata_room = MAX_INVENTORY_METADATA
        self._pings: dict[bytes, asyncio.Future[None]] = {}
        self._ping_numbers = itertools.count(1)
        self._acks: set[Channel] = set()
        self._ack_timer: asyncio.TimerHandle | None = None
        self._frames = FrameSocket(sock, self)

    @classmethod
    async def boot(cls, sock: socket.socket, secret: bytes, folder: str, *, timeout: float) -> Self:
        """The first link. Owns `sock` from here on. Until `adopt` the sandbox dies with the link."""
        hello = wire.frame(Type.BOOT, 0, wire.Boot(secret, os.fsencode(folder)).pack())
        return await cls(sock, boot_id=b"", first_channel=1)._begin(hello, timeout)

    @classmethod
    async def welcome(cls, sock: socket.socket, greeting: wire.Greeting, *, timeout: float) -> Self:
        """A later link, of a guest that has proved itself: takes the inventory. Owns `sock` from here on."""
        guest = cls(sock, boot_id=greeting.boot_id, first_channel=greeting.free_channel)
        return await guest._begin(wire.frame(Type.WELCOME, 0, wire.U16.pack(wire.VERSION)), timeout)

    async def _begin(self, first: bytes, timeout: float) -> Self:
        ready = self._ready
        assert ready is not None
        self._frames.send(first)
        try:
            await asyncio.wait_for(ready, timeout)
        except TimeoutError:
            raise errors.Timeout("the guest did not answer", reason="guest_timeout") from None
        finally:
            self._ready = None
            if not ready.done() or ready.cancelled() or ready.exception():
                self.close()
        return self

    @property
    def lost(self) -> bool:
        return self._frames.closed

    async def wait_closed(self) -> None:
        await asyncio.shield(self.closed)

    def gone(self) -> errors.Unavailable:
        return errors.Unavailable(
            "the link to the sandbox's guest is down",
            reason="guest_lost",
            hint="The guest dials again by itself: try again in a moment.",
        )

    def close(self) -> None:
        if not self._frames.closed:
            self._frames.close()
            self.ended(None)

    def adopt(self) -> None:
        """The sandbox may outlive this link from now on, and us too, whenever we die."""
        if self._first:
            self._send(wire.frame(Type.ADOPT))
            self.flush()

    def start(self, start: Start, sink: Sink) -> Channel:
        """Start an exec. Nothing is awaited: what comes of it, the sink hears."""
        payload = start.pack()
        number = self._next
        if self._frames.queued > BUSY or number > wire.MAX_CHANNEL:
            raise errors.Unavailable("the sandbox's guest does not keep up", reason="guest_busy")
        self._send(wire.frame(Type.START, number, payload))
        self._next = number + 1
        channel = Channel(
            self, number, sink, window=start.window, ack_step=start.window // 4,
            input_open=start.stdin or start.terminal, early_signals=[],
        )  # fmt: skip
        self._channels[number] = channel
        return channel

    def flush(self) -> None:
        """What was sent leaves now, not at the end of this turn of the loop: it outlives us from here on."""
        self._frames.flush()

    def resume(self, entry: Inventory, sink: Sink, position: int) -> Channel:
        """Take up an exec of the inventory. `position`: everything before it is safe here."""
        if not entry.acknowledged <= position <= entry.end:
            raise GuestViolation(f"the guest keeps {entry.acknowledged} to {entry.end}, not {position}")
        self._answer(entry, wire.frame(Type.RESUME, entry.channel, wire.U64.pack(position)))
        # The inventory does not tell the window: the smallest one decides when to acknowledge, the largest
        # what is too much.
        channel = Channel(
            self, entry.channel, sink, window=wire.MAX_WINDOW, ack_step=wire.MIN_WINDOW // 4,
            input_open=entry.stdin_open, position=position, credit=0, stdin_sent=entry.stdin_received,
        )  # fmt: skip
        self._channels[entry.channel] = channel
        return channel

    def forget(self, entry: Inventory) -> None:
        self._answer(entry, wire.frame(Type.RELEASE, entry.channel))

    def _answer(self, entry: Inventory, answer: bytes) -> None:
        if entry.channel not in self._unanswered:
            raise errors.Conflict("this exec of the inventory has been answered", reason="already_resumed")
        self._send(answer)
        self._unanswered.discard(entry.channel)

    async def ping(self, timeout: float) -> float:
        """The seconds of a round trip."""
        token = wire.U64.pack(next(self._ping_numbers))
        began = time.perf_counter()
        self._send(wire.frame(Type.PING, 0, token))
        answered = self._pings[token] = self._loop.create_future()
        try:
            await asyncio.wait_for(answered, timeout)
        except TimeoutError:
            raise errors.Timeout("the guest did not answer", reason="guest_timeout") from None
        finally:
            del self._pings[token]
        return time.perf_counter() - began

    def shutdown(self, grace_ms: int) -> None:
        """End every process inside, then the guest."""
        self._send(wire.frame(Type.SHUTDOWN, 0, wire.U32.pack(grace_ms)))

    def _send(self, data: bytes) -> None:
        if self._frames.closed:
            raise self.gone()
        self._frames.send(data)

    def _release(self, number: int) -> None:
        channel = self._channels.pop(number, None)
        if channel is not None:
            self._acks.discard(channel)
            self._frames.send(wire.frame(Type.RELEASE, number))

    def _ack_later(self, channel: Channel) -> None:
        self._acks.add(channel)
        if self._ack_timer is None and not self.lost:
            self._ack_timer = self._loop.call_later(ACK_IDLE_SECONDS, self._ack_now)

    def _ack_now(self) -> None:
        self._ack_timer = None
        for channel in self._acks:
            channel._send_ack()
        self._acks.clear()

    def frame(self, kind: int, channel: int, payload: memoryview) -> None:
        if channel and self._ready is None:
            found = self._find(channel)
            if kind == _STARTED:
                if found:
                    found._on_started(payload)
            elif kind == _EXIT:
                exit = Exit.unpack(payload)
                if found:
                    found._on_exit(exit)
            elif kind == _CREDIT:
                if found:
                    found._on_credit(wire.U32.unpack(payload)[0])
            else:
                raise GuestViolation(f"a frame of type {kind} for an exec")
        elif kind == Type.PONG and self._ready is None:
            # One that comes after its ping gave up is nobody's.
            answered = self._pings.get(bytes(payload))
            if answered is not None and not answered.done():
                answered.set_result(None)
        elif kind == Type.PROBLEM and not channel:
            text = bytes(payload[:500]).decode(errors="replace")
            raise GuestViolation(f"the guest ended the link: {text}", reason="guest_problem")
        else:
            self._introduce(kind, channel, payload)

    def output(self, channel: int, position: int, stream: int, data: bytes) -> None:
        found = self._find(channel)
        if found is not None:
            found._on_output(position, stream, data)

    def _find(self, number: int) -> Channel | None:
        """None for an exec that has been released: what was under way by then is late, not wrong."""
        channel = self._channels.get(number)
        if channel is not None:
            return channel
        if not 0 < number < self._next or number in self._unanswered or self._ready is not None:
            raise GuestViolation(f"a frame for channel {number}, which nobody has opened")
        return None

    def _introduce(self, kind: int, channel: int, payload: memoryview) -> None:
        """Before a link is ready: HELLO on a first one, INVENTORY and INVENTORY_END on a later one."""
        ready = self._ready
        if ready is None or ready.done():
            raise GuestViolation(f"a frame of type {kind} for channel {channel}, out of place")
        if kind == Type.HELLO and self._first and not channel:
            hello = wire.Hello.unpack(payload)
            if hello.version != wire.VERSION:
                raise GuestViolation(f"the guest speaks version {hello.version}", reason="guest_version")
            self.boot_id = hello.boot_id
            ready.set_result(None)
        elif kind == Type.INVENTORY and not self._first:
            self._keep(Inventory.unpack(channel, payload))
        elif kind == Type.INVENTORY_END and not self._first and not channel:
            ready.set_result(None)
        else:
            raise GuestViolation(f"a frame of type {kind} before the link is ready")

    def _keep(self, entry: Inventory) -> None:
        self._metadata_room -= len(entry.metadata)
        if len(self.inventory) >= MAX_INVENTORY or self._metadata_room < 0:
            raise GuestViolation("an inventory that is too large")
        if entry.channel in self._unanswered or entry.channel >= self._next:
            raise GuestViolation("an inventory with a channel that cannot be")
        self._unanswered.add(entry.channel)
        self.inventory.append(entry)

    def ended(self, error: Exception | None) -> None:
        self.failure = error
        if isinstance(error, GuestViolation):
            log.warning("guest_violation", boot=self.boot_id.hex(), reason=error.reason, detail=error.message)
        elif error is not None and not isinstance(error, OSError | errors.PaddockError):
            log.error("link_failed", boot=self.boot_id.hex(), exc_info=error)
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        self._acks.clear()
        waiting = [*self._pings.values(), *([self._ready] if self._ready else [])]
        for future in waiting:
            if not future.done():
                future.set_exception(error if isinstance(error, GuestViolation) else self.gone())
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel._on_lost()
        with contextlib.suppress(asyncio.InvalidStateError):
            self.closed.set_result(None)
