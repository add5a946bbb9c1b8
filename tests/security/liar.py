"""A runtime whose guests have been taken over: each is a script of the test, at the end of a real link."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from paddock.guest import wire
from paddock.guest.wire import Type
from paddock.runtimes.base import Ability, Instance, Spec, Stats
from tests.unit.guest_link.peer import BOOT_ID, Peer

Script = Callable[["LyingGuest"], Awaitable[None]]


class LyingGuest:
    def __init__(self, spec: Spec, link: socket.socket) -> None:
        self.spec = spec
        self.peer = Peer(link)
        self.secret = b""

    async def boot(self) -> None:
        """As an honest guest does it."""
        frame = await self.peer.expect(Type.BOOT)
        self.secret = wire.Boot.unpack(frame.payload).secret
        await self.peer.send(wire.frame(Type.HELLO, 0, wire.Hello(BOOT_ID).pack()))

    async def next_start(self) -> int:
        """The channel of the next exec it is asked for."""
        while (frame := await self.peer.next()).kind != Type.START:
            pass
        return frame.channel

    async def dial(self, free_channel: int = 1000) -> Peer:
        """Come back, with the right secret, from the right process."""
        path = str(self.spec.folder / "run" / "guest.sock")
        async with asyncio.timeout(30):
            while True:
                sock = socket.socket(socket.AF_UNIX)
                try:
                    sock.connect(path)
                    break
                except OSError:
                    sock.close()
                    await asyncio.sleep(0.02)
        peer = Peer(sock)
        greeting = wire.Greeting(self.secret, BOOT_ID, free_channel)
        await peer.send(wire.frame(Type.DIAL, 0, greeting.pack()))
        await peer.expect(Type.WELCOME)
        return peer


class LiarRuntime:
    name = "liar"

    def __init__(self) -> None:
        self.script: Script | None = None
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.guests: dict[str, LyingGuest] = {}
        self.ended: dict[str, asyncio.Event] = {}

    async def probe(self) -> list[Ability]:
        return [Ability("liar", True)]

    async def create(self, spec: Spec) -> Instance:
        ours, theirs = socket.socketpair()
        (spec.folder / "run").mkdir(parents=True, exist_ok=True)
        guest = self.guests[spec.id] = LyingGuest(spec, theirs)
        assert self.script is not None
        self.tasks[spec.id] = asyncio.ensure_future(self.script(guest))
        self.ended[spec.id] = asyncio.Event()
        return Instance(
            handle={"id": spec.id},
            pid=os.getpid(),
            link=ours,
            socket_folder=spec.folder / "run",
            peer_uid=os.getuid(),
        )

    async def recover(self, spec: Spec, handle: dict[str, Any]) -> Instance | None:
        return None

    def exited(self, instance: Instance) -> bool:
        return self.ended[instance.handle["id"]].is_set()

    async def wait(self, instance: Instance) -> None:
        await self.ended[instance.handle["id"]].wait()

    async def kill(self, instance: Instance) -> None:
        await self._end(instance.handle["id"])

    async def destroy(self, spec: Spec, handle: dict[str, Any] | None) -> None:
        await self._end(spec.id)
        shutil.rmtree(spec.folder, ignore_errors=True)

    async def _end(self, sandbox: str) -> None:
        task = self.tasks.pop(sandbox, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if sandbox in self.guests:
            self.guests.pop(sandbox).peer.close()
            self.ended[sandbox].set()

    async def stats(self, instance: Instance) -> Stats:
        return Stats()

    async def orphans(self, known: set[str]) -> list[str]:
        return []
