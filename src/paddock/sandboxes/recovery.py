"""After a restart: find every sandbox again, finish what was half done, remove what nobody knows."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from paddock.errors import PaddockError
from paddock.runtimes.base import Pausable, Runtime, Spec
from paddock.sandboxes import records
from paddock.sandboxes.box import Box
from paddock.sandboxes.lifecycle import LIVE, Change
from paddock.sandboxes.model import State
from paddock.sandboxes.slots import Slots

if TYPE_CHECKING:
    from paddock.sandboxes.boxes import Boxes

log = structlog.get_logger(__name__)

AT_ONCE = 16


async def recover(boxes: Boxes) -> None:
    slots = await records.all_slots(boxes.store)
    boxes.slots = Slots(slots)
    boxes.kept_slots = {owner for owner in slots if records.is_tenant(owner)}
    found = await records.all_sandboxes(boxes.store)
    for record in found:
        if record.runtime in boxes.runtimes:
            boxes.enter(record)
        else:
            log.error("sandbox_left_alone", sandbox=record.id, why=f"there is no runtime {record.runtime!r}")
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(box: Box) -> None:
        async with limit:
            try:
                await _settle(boxes, box)
            except (PaddockError, OSError) as error:
                log.error("sandbox_not_recovered", sandbox=box.id, error=str(error))

    await asyncio.gather(*(one(box) for box in list(boxes.boxes.values())))
    await _sweep(boxes, {record.id for record in found} | set(boxes.boxes))


async def _settle(boxes: Boxes, box: Box) -> None:
    async with box.lock:
        if box.record.state is State.DELETED:
            await boxes.remove(box)
            return
        if box.record.state not in LIVE:
            await _bury_execs(boxes, box, "sandbox_ended")
            return
        box.instance = await box.runtime.recover(box.spec, box.record.handle or {})
        if box.instance is None:
            await _gone(boxes, box)
            return
        await boxes.take_up_stored(box)
        if box.record.state is State.STOPPING:
            await boxes.finish_stop(box)
        else:
            await _as_recorded(box)
            boxes.begin_watch(box)


async def _gone(boxes: Boxes, box: Box) -> None:
    """Its guest ended while the server was away."""
    await _bury_execs(boxes, box, "sandbox_ended")
    change = Change.ENDED if box.record.state is State.STOPPING else Change.FAIL
    await boxes.move(
        box, change, reason="ended_while_away", message="the sandbox ended while the server was away"
    )


async def _bury_execs(boxes: Boxes, box: Box, reason: str) -> None:
    for stored in await records.unfinished_execs(boxes.store, box.id):
        boxes.bury(box, stored, reason, "the sandbox ended while the server was away")


async def _as_recorded(box: Box) -> None:
    """A crash between freezing and committing leaves the two apart: what is committed counts."""
    if isinstance(box.runtime, Pausable) and box.instance is not None:
        try:
            if box.record.state is State.PAUSED:
                await box.runtime.pause(box.instance)
            else:
                await box.runtime.resume(box.instance)
        except PaddockError as error:
            if error.reason != "pause_unsupported":
                raise


async def _sweep(boxes: Boxes, known: set[str]) -> None:
    """Remove sandboxes and logs that the store does not know: a create that was cut short left them."""
    for runtime in boxes.runtimes.values():
        for sandbox_id in await runtime.orphans(known):
            await _remove_orphan(boxes, runtime, sandbox_id)
        for folder in await asyncio.to_thread(_unknown, boxes.data.sandboxes, known):
            await _remove_orphan(boxes, runtime, folder.name)
    await asyncio.to_thread(_sweep_logs, boxes.data.logs, known)


async def _remove_orphan(boxes: Boxes, runtime: Runtime, sandbox_id: str) -> None:
    log.info("orphan_removed", sandbox=sandbox_id, runtime=runtime.name)
    try:
        await runtime.destroy(Spec(id=sandbox_id, folder=boxes.data.sandboxes / sandbox_id, slot=0), None)
    except (PaddockError, OSError) as error:
        log.error("orphan_not_removed", sandbox=sandbox_id, error=str(error))


def _unknown(parent: Path, known: set[str]) -> list[Path]:
    return [folder for folder in parent.iterdir() if folder.name not in known]


def _sweep_logs(logs: Path, known: set[str]) -> None:
    for folder in _unknown(logs, known):
        shutil.rmtree(folder, ignore_errors=True)
