"""Time and size rules: lifetimes, idle sandboxes, deletion after the end, disk use, retention."""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from paddock.errors import PaddockError
from paddock.sandboxes import records
from paddock.sandboxes.box import Box
from paddock.sandboxes.lifecycle import OVER
from paddock.sandboxes.model import State

if TYPE_CHECKING:
    from paddock.sandboxes.boxes import Boxes

log = structlog.get_logger(__name__)

TICK_SECONDS = 0.5
DISK_SECONDS = 2.0
RETENTION_SECONDS = 60.0


def due(box: Box, now: float) -> str | None:
    """What is to be done with a sandbox: 'expired', 'idle', 'delete', or nothing."""
    record = box.record
    if record.state is State.DELETED:
        # Its removal was cut short, or is under way.
        return "delete"
    if record.state in OVER:
        ended = record.ended_at or record.updated_at
        return "delete" if record.auto_delete is not None and now >= ended + record.auto_delete else None
    if record.state not in (State.RUNNING, State.PAUSED):
        return None
    if record.expires_at is not None and now >= record.expires_at:
        return "expired"
    if record.idle_timeout is not None and record.state is State.RUNNING and not box.busy:
        return "idle" if now >= box.last_active + record.idle_timeout else None
    return None


class Reaper:
    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes
        self._loops: list[asyncio.Task[None]] = []
        self._work: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._loops = [loop.create_task(work) for work in (self._rules(), self._disks(), self._retention())]

    async def close(self) -> None:
        tasks = [*self._loops, *self._work.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _rules(self) -> None:
        while True:
            now = time.time()
            for box in list(self._boxes.boxes.values()):
                if box.id not in self._work and (what := due(box, now)):
                    task = asyncio.get_running_loop().create_task(self._carry_out(box, what))
                    self._work[box.id] = task
            await asyncio.sleep(TICK_SECONDS)

    async def _carry_out(self, box: Box, what: str) -> None:
        try:
            if what == "delete":
                await self._boxes.delete_box(box)
            elif due(box, time.time()) == what:
                await self._boxes.stop_box(box, what)
        except (PaddockError, OSError) as error:
            log.warning("rule_not_carried_out", sandbox=box.id, rule=what, error=str(error))
            await asyncio.sleep(5 * TICK_SECONDS)
        finally:
            self._work.pop(box.id, None)

    async def _disks(self) -> None:
        """Where a disk limit is only watched: end what runs in a sandbox that is over it."""
        measured: dict[str, float] = {}
        while True:
            await asyncio.sleep(DISK_SECONDS)
            for box in list(self._boxes.boxes.values()):
                if self._unwatched(box, measured):
                    continue
                measured[box.id] = time.time()
                with suppress(PaddockError, OSError):
                    await self._measure(box)
            measured = {key: at for key, at in measured.items() if key in self._boxes.boxes}

    def _unwatched(self, box: Box, measured: dict[str, float]) -> bool:
        if box.record.state is not State.RUNNING or box.instance is None or box.record.limits.disk is None:
            return True
        if box.record.enforcement.get("disk") == "full":
            return True
        return not box.busy and measured.get(box.id, 0.0) > box.last_active

    async def _measure(self, box: Box) -> None:
        assert box.instance is not None
        assert box.record.limits.disk is not None
        stats = await box.runtime.stats(box.instance)
        if stats.disk is None or stats.disk <= box.record.limits.disk:
            box.over_disk = False
            return
        if not box.over_disk:
            log.warning("disk_limit_exceeded", sandbox=box.id, used=stats.disk, limit=box.record.limits.disk)
            self._boxes.events.append("sandbox.disk_limit", sandbox_id=box.id, data={"used": stats.disk})
        box.over_disk = True
        for live in list(box.execs.values()):
            if not live.ended and live.channel is not None:
                live.record.reason = "disk_limit"
                live.channel.kill(0)

    async def _retention(self) -> None:
        while True:
            with suppress(PaddockError):
                await self._forget_old()
            await asyncio.sleep(RETENTION_SECONDS)

    async def _forget_old(self) -> None:
        keep = self._boxes.settings.exec_retention
        await self._boxes.events.prune(self._boxes.settings.event_retention)
        store = self._boxes.store
        while old := await records.surplus_execs(
            store, older_than=time.time() - keep.seconds, keep=keep.count
        ):
            for sandbox_id, exec_id in old:
                folder = self._boxes.log_folder(sandbox_id, exec_id)
                await asyncio.to_thread(shutil.rmtree, folder, True)
            await store.write(records.forget_execs([exec_id for _, exec_id in old]))
