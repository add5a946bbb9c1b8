"""One sandbox in the server's memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from paddock.errors import Conflict, Gone, Unavailable
from paddock.guest.link import Guest
from paddock.runtimes.base import Instance, Runtime, Spec
from paddock.sandboxes.execs import LiveExec
from paddock.sandboxes.model import Sandbox, SandboxRecord, State

LINK_SECONDS = 10.0
"""How long a call waits for a guest that has to dial again."""


class Box:
    def __init__(self, record: SandboxRecord, spec: Spec, runtime: Runtime) -> None:
        self.record = record
        self.spec = spec
        self.runtime = runtime
        self.instance: Instance | None = None
        self.guest: Guest | None = None
        self.execs: dict[str, LiveExec] = {}
        """Those whose end is not committed yet."""
        self.lock = asyncio.Lock()
        """Held through every change of state."""
        self.named_starts = asyncio.Lock()
        """Held while an exec whose id the caller chose is looked for and started."""
        self.linked = asyncio.Event()
        self.told = False
        """Whether its guest has said, once in this server's life, which execs it has."""
        self.watcher: asyncio.Task[None] | None = None
        self.tasks: set[asyncio.Task[Any]] = set()
        self.last_active = record.last_active_at
        self.over_disk = False
        self.calls = 0
        """File calls under way: activity, like a running exec."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def busy(self) -> bool:
        return self.calls > 0 or any(not live.ended for live in self.execs.values())

    def view(self) -> Sandbox:
        view = self.record.public()
        view.last_active_at = time.time() if self.busy else self.last_active
        return view

    def touch(self) -> None:
        self.last_active = time.time()

    def own(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something for this sandbox; it ends with it."""
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def end_tasks(self) -> None:
        tasks = [*self.tasks, *([self.watcher] if self.watcher else [])]
        current = asyncio.current_task()
        others = [task for task in tasks if task is not current]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self.watcher = None

    def require_running(self) -> None:
        state = self.record.state
        if state is State.RUNNING:
            return
        if state is State.DELETED:
            raise Gone("the sandbox has been deleted", reason="sandbox_deleted")
        hint = "resume it first: paddock sandbox resume" if state is State.PAUSED else None
        raise Conflict(f"the sandbox is {state.value}", reason="sandbox_not_running", hint=hint)

    async def link(self) -> Guest:
        """The guest, once it can be talked to."""
        self.require_running()
        guest = self.guest
        if guest is not None and not guest.lost:
            return guest
        try:
            async with asyncio.timeout(LINK_SECONDS):
                while True:
                    await self.linked.wait()
                    self.require_running()
                    guest = self.guest
                    if guest is not None and not guest.lost:
                        return guest
                    self.linked.clear()
        except TimeoutError:
            raise Unavailable(
                "the sandbox's guest has not dialled back yet",
                reason="guest_lost",
                hint="try again in a moment",
            ) from None
