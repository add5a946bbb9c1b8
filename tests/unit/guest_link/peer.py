"""The other end of a link, scripted; and a Sink that remembers."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace

from paddock.guest import wire
from paddock.guest.link import Guest
from paddock.guest.wire import Exit, Outcome, Stage, Start, Type

PATIENCE = 30.0
SECRET = bytes(range(32))
BOOT_ID = b"boot" * 4
EXIT = Exit(Outcome.EXITED, Stage.NONE, 0, 0, 0, 0, 1, 2, 3, 4, 5)
START = Start([b"true"], [b"PATH=/usr/bin:/bin"], b"/")


@dataclass(frozen=True, slots=True)
class Frame:
    kind: int
    channel: int
    payload: bytes
    flags: int = 0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 (what is waited for has no event of its own)
            await asyncio.sleep(0.002)


class Peer:
    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._read = b""

    async def send(self, *frames: bytes) -> None:
        await self._loop.sock_sendall(self._sock, b"".join(frames))

    async def output(self, channel: int, position: int, data: bytes, stream: int = wire.STDOUT) -> None:
        await self.send(output_frame(channel, position, data, stream))

    async def exit(self, channel: int, end: int = 0, **changes: int) -> None:
        done = replace(EXIT, end=end, stdout_bytes=end, **changes)
        await self.send(wire.frame(Type.EXIT, channel, done.pack()))

    async def next(self) -> Frame:
        async with asyncio.timeout(PATIENCE):
            size, channel, kind, flags, zero = wire.HEADER.unpack(await self._exactly(wire.HEADER.size))
            assert zero == 0
            return Frame(kind, channel, await self._exactly(size), flags)

    async def expect(self, kind: Type) -> Frame:
        frame = await self.next()
        assert frame.kind == kind, frame
        return frame

    async def has_ended(self) -> bool:
        """Whether the host closes the link, after whatever it still had to say."""
        async with asyncio.timeout(PATIENCE):
            try:
                while await self._loop.sock_recv(self._sock, 65536):
                    pass
            except ConnectionResetError:
                pass
            return True

    async def _exactly(self, size: int) -> bytes:
        while len(self._read) < size:
            more = await self._loop.sock_recv(self._sock, 1 << 20)
            assert more, "the host has closed the link"
            self._read += more
        data, self._read = self._read[:size], self._read[size:]
        return data

    def close(self) -> None:
        self._sock.close()


def output_frame(channel: int, position: int, data: bytes, stream: int = wire.STDOUT) -> bytes:
    return wire.frame(Type.OUTPUT, channel, wire.OUTPUT.pack(position, stream) + data)


async def boot() -> tuple[Guest, Peer]:
    ours, theirs = socket.socketpair()
    peer = Peer(theirs)
    booting = asyncio.create_task(Guest.boot(ours, SECRET, "/run/paddock", timeout=PATIENCE))
    frame = await peer.expect(Type.BOOT)
    assert wire.Boot.unpack(frame.payload) == wire.Boot(SECRET, b"/run/paddock")
    await peer.send(wire.frame(Type.HELLO, 0, wire.Hello(BOOT_ID).pack()))
    return await booting, peer


async def redial(*entries: wire.Inventory, free_channel: int = 100) -> tuple[Guest, Peer]:
    ours, theirs = socket.socketpair()
    peer = Peer(theirs)
    greeting = wire.Greeting(SECRET, BOOT_ID, free_channel)
    coming = asyncio.create_task(Guest.welcome(ours, greeting, timeout=PATIENCE))
    await peer.expect(Type.WELCOME)
    frames = [wire.frame(Type.INVENTORY, entry.channel, entry.pack()) for entry in entries]
    await peer.send(*frames, wire.frame(Type.INVENTORY_END))
    return await coming, peer


def entry(channel: int, **changes: object) -> wire.Inventory:
    base = wire.Inventory(channel, True, True, 10 + channel, 0, 0, 0, 7, b"about it")
    return replace(base, **changes)  # type: ignore[arg-type]


class Recorder:
    def __init__(self) -> None:
        self.pid: int | None = None
        self.streams: dict[int, bytearray] = {wire.STDOUT: bytearray(), wire.STDERR: bytearray()}
        self.end = 0
        self.exit: Exit | None = None
        self.losses = 0

    @property
    def stdout(self) -> bytes:
        return bytes(self.streams[wire.STDOUT])

    @property
    def stderr(self) -> bytes:
        return bytes(self.streams[wire.STDERR])

    def started(self, pid: int, started_ns: int) -> None:
        assert self.pid is None
        self.pid = pid

    def output(self, position: int, stream: int, data: bytes) -> None:
        assert position == self.end
        assert type(data) is bytes
        self.end += len(data)
        self.streams[stream] += data

    def exited(self, exit: Exit) -> None:
        assert self.exit is None
        self.exit = exit

    def lost(self) -> None:
        self.losses += 1

    async def wait_exit(self) -> Exit:
        await until(lambda: self.exit is not None or self.losses > 0)
        assert self.exit is not None, "the link was lost"
        return self.exit


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
