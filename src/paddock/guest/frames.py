"""A socket that carries frames: reading without copies, writing without tasks.

Reader callbacks instead of a transport, so that all links of a thread share one read buffer: an idle link
costs none of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import deque
from itertools import islice
from typing import Protocol

from paddock import errors
from paddock.guest import wire

HIGH_WATER = 1 << 20
"""Queued bytes above which `drain` waits."""
FULL = 32 << 20
"""Queued bytes at which a peer that does not read is given up."""
_READ_BUFFER = 1 << 20
_MOST_BUFFERS = 64
_OUTPUT = int(wire.Type.OUTPUT)
_HEADER = wire.HEADER.size


class Receiver(Protocol):
    """Whom the frames are for. Raising from `frame` or `output` ends the link."""

    def frame(self, kind: int, channel: int, payload: memoryview) -> None:
        """A whole frame. The payload is only valid during the call."""

    def output(self, channel: int, position: int, stream: int, data: bytes) -> None:
        """An OUTPUT frame."""

    def ended(self, error: Exception | None) -> None:
        """Nothing more will come. Called once, unless `close` was called first."""


class _Shared(threading.local):
    def __init__(self) -> None:
        self.view = memoryview(bytearray(_READ_BUFFER))


_shared = _Shared()


class FrameSocket:
    def __init__(self, sock: socket.socket, receiver: Receiver) -> None:
        sock.setblocking(False)
        self.queued = 0
        self.closed = False
        self._sock = sock
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._view = _shared.view
        self._carry = b""
        self._queue: deque[bytes | memoryview] = deque()
        self._flush_planned = False
        self._waits_for_room = False
        self._drained: asyncio.Future[None] | None = None
        self._loop.add_reader(sock, self._readable)

    def send(self, *parts: bytes) -> None:
        """Queue bytes. All that is queued in one turn of the loop leaves in one system call."""
        if self.closed:
            return
        self._queue.extend(parts)
        for part in parts:
            self.queued += len(part)
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)
        elif self.queued > FULL:
            # Not from here: whoever sends is in the middle of something.
            self._loop.call_soon(self._give_up)

    def flush(self) -> None:
        """Send now what is queued, as far as the socket takes it without waiting."""
        self._flush()

    async def drain(self) -> None:
        while self.queued > HIGH_WATER and not self.closed:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    def close(self) -> None:
        """What is queued still leaves, as far as the socket takes it without waiting."""
        if self.closed:
            return
        self.closed = True
        with contextlib.suppress(OSError):
            self._send_queued()
        self._loop.remove_reader(self._sock)
        if self._waits_for_room:
            self._loop.remove_writer(self._sock)
        self._sock.close()
        self._queue.clear()
        self.queued = 0
        self._carry = b""
        self._wake_drained()

    def _end(self, error: Exception | None) -> None:
        if not self.closed:
            self.close()
            self._receiver.ended(error)

    def _flush(self) -> None:
        if self.closed:
            return
        try:
            self._send_queued()
        except (BlockingIOError, InterruptedError):
            self._wait_for_room()
        except OSError as error:
            self._broken(error)
        else:
            self._flush_planned = False
            if self._waits_for_room:
                self._waits_for_room = False
                self._loop.remove_writer(self._sock)
        if self.queued <= HIGH_WATER:
            self._wake_drained()

    def _send_queued(self) -> None:
        queue, sock = self._queue, self._sock
        while queue:
            if len(queue) == 1:
                sent = sock.send(queue[0])
            else:
                sent = sock.sendmsg(list(islice(queue, _MOST_BUFFERS)))
            self._forget(sent)

    def _give_up(self) -> None:
        if self.queued > FULL:
            self._end(errors.Unavailable("the guest does not read its link", reason="guest_stuck"))

    def _wait_for_room(self) -> None:
        if not self._waits_for_room:
            self._waits_for_room = True
            self._loop.add_writer(self._sock, self._flush)

    def _forget(self, sent: int) -> None:
        self.queued -= sent
        queue = self._queue
        while sent:
            first = queue[0]
            if sent < len(first):
                queue[0] = memoryview(first)[sent:]
                return
            sent -= len(first)
            queue.popleft()

    def _broken(self, error: OSError) -> None:
        """Sending failed: the peer has closed. What it said before is still there to be read."""
        for _ in range(16):
            if self.closed or not self._readable():
                break
        self._end(error)

    def _wake_drained(self) -> None:
        if self._drained is not None:
            if not self._drained.done():
                self._drained.set_result(None)
            self._drained = None

    def _readable(self) -> bool:
        view, carried = self._view, len(self._carry)
        try:
            size = self._receive(view[carried:])
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._end(error)
            return False
        if size == 0:
            self._end(None)
            return False
        if carried:
            view[:carried] = self._carry
        try:
            self._split(view, carried + size)
        except Exception as error:
            self._end(error)
            return False
        return True

    def _receive(self, room: memoryview) -> int:
        try:
            return self._sock.recv_into(room)
        except ConnectionResetError:
            # Said once when the peer closed with our bytes unread; its last frames come after.
            return self._sock.recv_into(room)

    def _split(self, view: memoryview, end: int) -> None:
        at = 0
        while end - at >= _HEADER:
            size, channel, kind, flags, zero = wire.HEADER.unpack_from(view, at)
            _check(size, kind, flags, zero)
            start = at + _HEADER
            if end - start < size:
                break
            at = start + size
            if kind == _OUTPUT:
                position, stream = wire.OUTPUT.unpack_from(view, start)
                self._receiver.output(channel, position, stream, bytes(view[start + wire.OUTPUT.size : at]))
            else:
                self._receiver.frame(kind, channel, view[start:at])
            if self.closed:
                return
        self._carry = bytes(view[at:end])


def _check(size: int, kind: int, flags: int, zero: int) -> None:
    least, most = wire.GUEST_LENGTHS.get(kind, (1, 0))
    if not least <= size <= most:
        raise wire.GuestViolation(f"a frame of type {kind} with {size} bytes")
    if flags or zero:
        raise wire.GuestViolation("a non-zero reserved field")
