"""The sandboxes of this server: making them, changing their state, ending them."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any

import structlog

from paddock.config import DataDir, Settings
from paddock.errors import Conflict, Exhausted, Invalid, NotFound, PaddockError, Unavailable, Unsupported
from paddock.events.log import EventLog
from paddock.guest.link import Guest
from paddock.runtimes.base import Instance, Pausable, Runtime
from paddock.sandboxes import planning, records, tenants
from paddock.sandboxes.box import Box
from paddock.sandboxes.execcalls import ExecCalls
from paddock.sandboxes.lifecycle import LIVE, OVER, Change, next_state
from paddock.sandboxes.model import SandboxRecord, State
from paddock.sandboxes.requests import CreateSandbox
from paddock.sandboxes.slots import Slots
from paddock.sandboxes.watching import watch
from paddock.store import Op, Store

log = structlog.get_logger(__name__)

BOOT_SECONDS = 15.0
STOP_GRACE_MS = 2000
AT_ONCE = 4 * (os.cpu_count() or 1)
"""Sandboxes that are made at the same time: more only wait for each other."""


class Boxes(ExecCalls):
    def __init__(
        self,
        settings: Settings,
        store: Store,
        events: EventLog,
        data: DataDir,
        runtimes: Mapping[str, Runtime],
    ) -> None:
        super().__init__(settings, store, events, data)
        self.runtimes = runtimes
        self.slots = Slots({})
        self.kept_slots: set[str] = set()
        """Tenants whose slots the store has."""
        self._names: dict[tuple[str | None, str], str] = {}
        self._making = asyncio.Semaphore(AT_ONCE)

    def box(self, ref: str) -> Box:
        found = self.boxes.get(ref) or self._named(ref)
        if found is None or found.record.state is State.DELETED:
            raise NotFound(
                f"there is no sandbox {ref!r}",
                reason="sandbox_not_found",
                hint="list them with: paddock sandbox list",
            )
        return found

    def _named(self, name: str) -> Box | None:
        owners = [owner for (_, taken), owner in self._names.items() if taken == name and owner in self.boxes]
        if len(owners) > 1:
            raise Conflict(
                f"{len(owners)} tenants have a sandbox named {name!r}",
                reason="name_ambiguous",
                hint=f"use an id: {', '.join(sorted(owners))}",
            )
        return self.boxes[owners[0]] if owners else None

    def runtime(self, name: str) -> Runtime:
        try:
            return self.runtimes[name]
        except KeyError:
            known = ", ".join(sorted(self.runtimes))
            raise Invalid(
                f"there is no runtime {name!r}", reason="runtime_unknown", hint=f"known: {known}"
            ) from None

    async def make(self, request: CreateSandbox, by: str | None) -> Box:
        box, ops = self._reserve(request, by)
        try:
            async with self._making, box.lock:
                await self._bring_up(box, ops)
        except BaseException as error:
            self._give_back(box)
            log.info("sandbox_not_made", sandbox=box.id, error=str(error))
            raise
        self._announce(box, "sandbox.created")
        self._announce(box, "sandbox.running")
        return box

    def enter(self, record: SandboxRecord) -> Box:
        """Take in a sandbox that the store knows."""
        storage = tenants.prepare(self.data.tenants, record.tenant, record.slot) if record.tenant else None
        box = Box(record, planning.spec_of(record, self.data, storage), self.runtime(record.runtime))
        self.boxes[record.id] = box
        if record.name is not None and record.state is not State.DELETED:
            self._names[record.tenant, record.name] = record.id
        return box

    def _reserve(self, request: CreateSandbox, by: str | None) -> tuple[Box, list[Op]]:
        """Everything that can be refused without touching the host. Takes id, name and slot."""
        runtime = self.runtime(request.runtime or self.settings.default_runtime)
        if len(self.boxes) >= self.settings.max_sandboxes:
            raise Exhausted(
                f"there are {len(self.boxes)} sandboxes, and no more are allowed",
                reason="too_many_sandboxes",
                hint="delete some, or raise max_sandboxes",
            )
        if request.id is not None and request.id in self.boxes:
            raise Conflict(f"there is a sandbox {request.id!r} already", reason="id_taken")
        key = (request.tenant, request.name) if request.name else None
        if key is not None and key in self._names:
            raise Conflict(f"there is a sandbox named {request.name!r} already", reason="name_taken")
        record = planning.plan(request, self.settings, 0, by)
        owner = records.slot_owner(record.id, record.tenant)
        slot = self.slots.of(owner) or self.slots.take(owner)
        ops = [] if owner in self.kept_slots else [records.insert_slot(slot, owner)]
        record.slot = slot
        storage = tenants.prepare(self.data.tenants, record.tenant, slot) if record.tenant else None
        box = Box(record, planning.spec_of(record, self.data, storage), runtime)
        self.boxes[record.id] = box
        if key is not None:
            self._names[key] = record.id
        return box, ops

    def _give_back(self, box: Box) -> None:
        record = box.record
        record.state = State.DELETED
        self.boxes.pop(box.id, None)
        if record.name is not None and self._names.get((record.tenant, record.name)) == box.id:
            del self._names[record.tenant, record.name]
        if record.tenant is None:
            self.slots.free(records.slot_owner(box.id, None))

    async def _bring_up(self, box: Box, ops: list[Op]) -> None:
        instance: Instance | None = None
        guest: Guest | None = None
        try:
            box.spec.folder.mkdir(mode=0o711)
            instance = await box.runtime.create(box.spec)
            if box.record.strict:
                planning.insist(instance.enforcement)
            guest = await self._boot(box, instance)
            record = self._ready_record(box.record, instance)
            if record.tenant is not None:
                await self._keep_tenant_slot(record.tenant, ops)
                ops = []
            await self.store.write(*ops, records.insert_sandbox(record))
            guest.adopt()
        except BaseException as error:
            if guest is not None:
                guest.close()
            await _to_its_end(self._undo(box, instance, written=guest is not None))
            if isinstance(error, OSError):
                raise Unavailable(f"cannot make the sandbox: {error}", reason="create_failed") from error
            raise
        box.record, box.instance, box.guest, box.told = record, instance, guest, True
        box.touch()
        self.begin_watch(box)

    async def _undo(self, box: Box, instance: Instance | None, *, written: bool) -> None:
        await box.runtime.destroy(box.spec, instance.handle if instance else None)
        if written:
            # Whoever gave up while the record was on its way does not know whether it has arrived.
            await self.store.write(*records.forget_sandbox(box.id))

    async def _keep_tenant_slot(self, tenant: str, ops: list[Op]) -> None:
        """A tenant's slot is the tenant's: it stays, whatever becomes of this sandbox."""
        if ops:
            # Another sandbox of the tenant may have been faster.
            with suppress(Conflict):
                await self.store.write(*ops)
            self.kept_slots.add(records.slot_owner("", tenant))

    async def _boot(self, box: Box, instance: Instance) -> Guest:
        assert instance.link is not None
        secret = bytes.fromhex(box.record.secret)
        return await Guest.boot(instance.link, secret, instance.dial_folder, timeout=BOOT_SECONDS)

    def _ready_record(self, record: SandboxRecord, instance: Instance) -> SandboxRecord:
        now = time.time()
        changes = {
            "state": next_state(record.state, Change.READY),
            "handle": instance.handle,
            "enforcement": instance.enforcement,
            "workspace": instance.workspace,
            "home": instance.home,
            "outputs": instance.outputs,
            "started_at": now,
            "updated_at": now,
        }
        return record.model_copy(update=changes)

    def begin_watch(self, box: Box) -> None:
        box.linked.set() if box.guest else box.linked.clear()
        box.watcher = asyncio.get_running_loop().create_task(watch(box, self._died, self.reattach))

    async def _died(self, box: Box) -> None:
        """The guest ended by itself."""
        async with box.lock:
            if box.record.state in LIVE:
                await self.fail(box, "guest_died", "the sandbox ended: its guest is gone")

    async def fail(self, box: Box, reason: str, message: str) -> None:
        assert box.instance is not None
        await box.runtime.kill(box.instance)
        self.end_execs(box, reason, message)
        await self.move(box, Change.FAIL, reason=reason, message=message)

    def end_execs(self, box: Box, reason: str, error: str) -> None:
        if box.guest is not None:
            box.guest.close()
            box.guest = None
        box.linked.set()
        for live in list(box.execs.values()):
            live.abandon(reason, error)

    async def move(
        self, box: Box, change: Change, *, reason: str | None = None, message: str | None = None
    ) -> None:
        """Commit a change of state, then let the world know. Needs the lock."""
        now = time.time()
        state = next_state(box.record.state, change)
        changes: dict[str, object] = {
            "state": state,
            "updated_at": now,
            "last_active_at": box.last_active,
            "reason": reason,
            "message": message,
        }
        if state in OVER:
            changes["ended_at"] = now
        record = box.record.model_copy(update=changes)
        await self.store.write(records.update_sandbox(record))
        box.record = record
        if state is not State.RUNNING:
            # Whoever waits for the link shall see that there is none to wait for.
            box.linked.set()
        self._announce(box, "sandbox.resumed" if change is Change.RESUME else f"sandbox.{state.value}")

    def _announce(self, box: Box, kind: str) -> None:
        record = box.record
        data: dict[str, object] = {"state": record.state.value}
        if record.name:
            data["name"] = record.name
        if record.reason:
            data["reason"] = record.reason
        self.events.append(kind, sandbox_id=box.id, data=data)

    async def pause_box(self, box: Box) -> None:
        async with box.lock:
            next_state(box.record.state, Change.PAUSE)
            runtime = self._pausable(box)
            assert box.instance is not None
            await runtime.pause(box.instance)
            try:
                await self.move(box, Change.PAUSE)
            except BaseException:
                await asyncio.shield(runtime.resume(box.instance))
                raise

    async def resume_box(self, box: Box) -> None:
        async with box.lock:
            next_state(box.record.state, Change.RESUME)
            runtime = self._pausable(box)
            assert box.instance is not None
            await self.move(box, Change.RESUME)
            await runtime.resume(box.instance)
            box.touch()

    def _pausable(self, box: Box) -> Pausable:
        if isinstance(box.runtime, Pausable):
            return box.runtime
        raise Unsupported(f"the {box.runtime.name} runtime cannot pause", reason="pause_unsupported")

    async def stop_box(self, box: Box, reason: str) -> None:
        """End its processes; keep its files and its record. Nothing to do for one that has ended."""
        async with box.lock:
            if box.record.state in OVER:
                return
            if box.record.state is not State.STOPPING:
                paused = box.record.state is State.PAUSED
                await self.move(box, Change.STOP, reason=reason)
                if paused and box.instance is not None and isinstance(box.runtime, Pausable):
                    await box.runtime.resume(box.instance)
            await self.finish_stop(box)

    async def finish_stop(self, box: Box) -> None:
        assert box.instance is not None
        if box.watcher is not None:
            box.watcher.cancel()
        if box.guest is not None and not box.guest.lost:
            with suppress(PaddockError, TimeoutError):
                box.guest.shutdown(STOP_GRACE_MS)
                async with asyncio.timeout(STOP_GRACE_MS / 1000 + 3):
                    await box.runtime.wait(box.instance)
        await box.runtime.kill(box.instance)
        self.end_execs(box, "sandbox_stopped", "the sandbox was stopped")
        await self.move(box, Change.ENDED, reason=box.record.reason)

    async def delete_box(self, box: Box) -> SandboxRecord:
        async with box.lock:
            if box.record.state is not State.DELETED:
                await self.move(box, Change.DELETE)
            if box.id in self.boxes:
                await self.remove(box)
        return box.record

    async def remove(self, box: Box) -> None:
        """Everything of a sandbox whose deletion is committed. After a crash the next start goes on here."""
        if box.guest is not None:
            box.guest.close()
            box.guest = None
        for live in list(box.execs.values()):
            live.abandon("sandbox_deleted", "the sandbox was deleted")
        box.linked.set()
        await box.end_tasks()
        await box.runtime.destroy(box.spec, box.record.handle)
        await asyncio.to_thread(shutil.rmtree, self.data.logs / box.id, True)
        await self.store.write(*records.forget_sandbox(box.id))
        self._give_back(box)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Clean up even when the caller is cancelled, again, meanwhile."""
    task = asyncio.get_running_loop().create_task(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    task.result()
