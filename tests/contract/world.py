"""A server's core on a data folder of its own, as a scenario sees it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

from paddock.config import DataDir, LimitDefaults, Settings
from paddock.events.log import EventLog
from paddock.runtimes.base import Runtime
from paddock.sandboxes.execlog import Chunk, Gap
from paddock.sandboxes.model import Exec, ExecResult, Sandbox, State
from paddock.sandboxes.requests import CreateSandbox, ExecRequest
from paddock.sandboxes.service import Sandboxes
from paddock.store import Store
from tests.contract.remains import Remains

Result = TypeVar("Result")

OUTPUT_KEPT = 4 << 20
"""Small, so that a scenario reaches it."""
PATIENCE = 30.0


def make_runtime(variant: str, folder: Path) -> Runtime:
    if variant == "fake":
        from paddock.runtimes.fake import FakeRuntime

        return FakeRuntime(folder / "sandboxes")
    from paddock.runtimes.bubblewrap import BubblewrapRuntime

    return BubblewrapRuntime(folder)


class World:
    """Use `open`. What a scenario leaves is deleted after it, and nothing of it may stay on the host."""

    service: Sandboxes
    store: Store
    events: EventLog
    runtime: Runtime

    def __init__(self, variant: str) -> None:
        self.variant = variant
        # Not below pytest's own folder, which the sandboxes' users may not enter.
        self.folder = Path(tempfile.mkdtemp(prefix="paddock-contract-"))
        self.folder.chmod(0o711)
        self.data = DataDir(self.folder)
        self.data.ensure()
        self._shared: str | None = None
        self._remains = Remains(self.folder)

    @classmethod
    async def open(cls, variant: str) -> World:
        world = cls(variant)
        await world.start()
        await world.shared()
        return world

    @property
    def settings(self) -> Settings:
        return Settings(
            data_dir=self.folder,
            default_runtime="fake" if self.variant == "fake" else "bubblewrap",
            limits=LimitDefaults(memory=512 << 20, processes=256, output=OUTPUT_KEPT),
        )

    async def start(self, *, without_runtime: bool = False) -> None:
        settings = self.settings
        self.store = await Store.open(settings.database_url)
        self.events = await EventLog.open(self.store)
        self.runtime = make_runtime(self.variant, self.folder)
        self.service = Sandboxes(
            settings=settings,
            store=self.store,
            events=self.events,
            runtimes={} if without_runtime else {self.runtime.name: self.runtime},
            data=self.data,
        )
        await self.service.open()

    async def crash(self) -> None:
        """The server goes without a word: its links break, and nobody writes anything down."""
        for box in self.service.boxes.values():
            if box.guest is not None:
                box.guest.close()
        await self.service.close()
        await self.store.close()

    async def restart(self) -> None:
        await self.crash()
        await self.start()

    async def settle(self) -> None:
        """After a scenario: delete what it made, and look for what that left on the host."""
        for sandbox in self.service.list(limit=100_000):
            if sandbox.id != self._shared or sandbox.state is not State.RUNNING:
                self._remember(sandbox.id)
                await self.service.delete(sandbox.id)
        await self.until(lambda: set(self.service.boxes) <= {self._shared})
        known = set(self.service.boxes)
        left: list[str] = []

        def clean() -> bool:
            left[:] = self._remains.found(known)
            return not left

        try:
            await self.until(clean, seconds=10)
        except TimeoutError:
            raise AssertionError("left behind:\n  " + "\n  ".join(left)) from None

    async def close(self) -> None:
        try:
            for sandbox in self.service.list(limit=100_000):
                self._remember(sandbox.id)
                await self.service.delete(sandbox.id)
            left = self._remains.found(set())
            await self.service.close()
            await self.store.close()
            assert not left, left
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _remember(self, sandbox_id: str) -> None:
        record = self.service.boxes[sandbox_id].record
        self._remains.expect_gone(sandbox_id, record.handle or {})

    async def shared(self) -> str:
        """A sandbox for scenarios that do not change it."""
        box = self.service.boxes.get(self._shared) if self._shared is not None else None
        if box is not None and box.record.state is State.RUNNING:
            return box.id
        self._shared = (await self.service.create(CreateSandbox())).id
        return self._shared

    async def create(self, **fields: object) -> Sandbox:
        sandbox = await self.service.create(CreateSandbox.model_validate(fields))
        self._remember(sandbox.id)
        return sandbox

    async def run(self, ref: str, *command: str, **fields: object) -> ExecResult:
        request = ExecRequest.model_validate({"command": list(command), **fields})
        return await asyncio.wait_for(self.service.run_exec(ref, request), 60)

    async def sh(self, ref: str, script: str, **fields: object) -> ExecResult:
        return await self.run(ref, "/bin/sh", "-c", script, **fields)

    async def start_exec(self, ref: str, *command: str, **fields: object) -> Exec:
        request = ExecRequest.model_validate({"command": list(command), "background": True, **fields})
        return await self.service.start_exec(ref, request)

    async def start_sh(self, ref: str, script: str, **fields: object) -> Exec:
        return await self.start_exec(ref, "/bin/sh", "-c", script, **fields)

    async def wait(self, ref: str, exec_id: str) -> Exec:
        return await self.service.wait_exec(ref, exec_id, 60)

    async def output(self, ref: str, exec_id: str, after: int = 0, follow: bool = True) -> list[Chunk | Gap]:
        async with asyncio.timeout(60):
            return [piece async for piece in self.service.output(ref, exec_id, after=after, follow=follow)]

    async def text(self, ref: str, exec_id: str) -> bytes:
        """All of its stdout, when it has ended."""
        pieces = await self.output(ref, exec_id)
        return b"".join(p.data for p in pieces if isinstance(p, Chunk) and p.stream == "stdout")

    async def until_output(self, ref: str, exec_id: str, wanted: bytes) -> None:
        """Return when the exec has said something."""
        seen = b""
        async with asyncio.timeout(PATIENCE):
            async for piece in self.service.output(ref, exec_id):
                seen += piece.data if isinstance(piece, Chunk) else b""
                if wanted in seen:
                    return
        raise AssertionError(f"it never said {wanted!r}, only {seen[-500:]!r}")

    async def until(self, what: Callable[[], object], *, seconds: float = PATIENCE) -> None:
        """Poll until it is true."""

        async def look() -> object:
            return what()

        await self.found(look, seconds=seconds)

    async def found(self, what: Callable[[], Awaitable[Result]], *, seconds: float = PATIENCE) -> Result:
        """Ask until the answer is true, and return it."""
        deadline = time.monotonic() + seconds
        while True:
            result = await what()
            if result:
                return result
            if time.monotonic() > deadline:
                raise TimeoutError("it did not become true")
            await asyncio.sleep(0.02)

    async def read(self, ref: str, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        stream = await self.service.files.read(ref, path, offset=offset, length=length)
        return b"".join([data async for data in stream])

    async def write(self, ref: str, path: str, content: bytes) -> None:
        await self.service.files.write(ref, path, chunks(content))

    async def path(self, ref: str) -> str:
        """A folder of its own in a shared sandbox."""
        name = f"t{os.urandom(6).hex()}"
        await self.sh(ref, f"mkdir {name}")
        return name

    def need(self, works: bool, ability: str) -> None:
        if not works:
            pytest.skip(f"missing ability: {ability} ({self.variant})")

    async def need_pause(self, ref: str) -> None:
        from paddock.errors import Unsupported

        try:
            await self.service.pause(ref)
        except Unsupported:
            pytest.skip(f"missing ability: pause ({self.variant})")
        await self.service.resume(ref)


async def chunks(content: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


def sha256(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
