"""A real guest, made by the fake runtime."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from paddock.guest.dial import Dial
from paddock.guest.link import Guest
from paddock.guest.wire import Start
from paddock.runtimes.base import Instance, Spec
from paddock.runtimes.fake import FakeRuntime
from tests.unit.guest_link.peer import PATIENCE, SECRET

ENVIRONMENT = [b"PATH=" + os.environ.get("PATH", "/usr/bin:/bin").encode(), b"LC_ALL=C"]


@dataclass(slots=True)
class Sandbox:
    runtime: FakeRuntime
    spec: Spec
    instance: Instance
    guest: Guest

    async def redial(self) -> Guest:
        """Drop the link and wait for the guest to come back."""
        self.guest.close()
        dial = Dial(
            self.instance.socket_folder,
            SECRET,
            peer_uid=self.instance.peer_uid,
            peer_pid=self.instance.pid,
            uid_owner=None,
        )
        self.guest = await dial.accept(PATIENCE)
        return self.guest


@asynccontextmanager
async def sandbox(folder: Path, *, adopt: bool = True) -> AsyncIterator[Sandbox]:
    runtime = FakeRuntime()
    spec = Spec("sb-1", folder / "sb-1", 1)
    spec.folder.mkdir()
    try:
        instance = await runtime.create(spec)
        assert instance.link is not None
        guest = await Guest.boot(instance.link, SECRET, instance.dial_folder, timeout=PATIENCE)
        if adopt:
            guest.adopt()
        made = Sandbox(runtime, spec, instance, guest)
        try:
            yield made
        finally:
            made.guest.close()
    finally:
        await asyncio.shield(runtime.destroy(spec, None))


def sh(script: str, **settings: object) -> Start:
    return Start([b"sh", b"-c", script.encode()], ENVIRONMENT, b"/", **settings)  # type: ignore[arg-type]
