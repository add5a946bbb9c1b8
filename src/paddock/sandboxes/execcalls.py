"""Starting execs, finding them again, and seeing them to their end.

The guest is the write-ahead log of execs: START carries the record, output stays inside until it is safe
here, and the guest forgets an exec only after its final record is committed. So a foreground exec needs no
database round trip before its answer, and none is lost with the server.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from paddock.config import DataDir, Settings
from paddock.errors import Conflict, Exhausted, NotFound, PaddockError, Unavailable
from paddock.events.log import EventLog
from paddock.guest.link import Guest
from paddock.guest.wire import GuestViolation, Inventory
from paddock.sandboxes import execinput, records
from paddock.sandboxes.box import Box
from paddock.sandboxes.execlog import OutputLog
from paddock.sandboxes.execs import LiveExec
from paddock.sandboxes.execution import MOST_METADATA, describe, from_metadata, input_of, to_start
from paddock.sandboxes.model import Exec, ExecState, State
from paddock.sandboxes.records import StoredExec
from paddock.sandboxes.requests import ExecRequest
from paddock.store import Store

log = structlog.get_logger(__name__)

AGAIN_SECONDS = 0.5
ASIDE_SECONDS = 0.001
"""The caller waits for the answer, and nobody for the record: so long the answer goes first."""
SMALL_COMMAND = MOST_METADATA // 8
"""Characters of command up to which its record surely fits into the guest's metadata."""


class ExecCalls:
    def __init__(self, settings: Settings, store: Store, events: EventLog, data: DataDir) -> None:
        self.settings = settings
        self.store = store
        self.events = events
        self.data = data
        self._logs = data.logs
        self.boxes: dict[str, Box] = {}

    def log_folder(self, sandbox_id: str, exec_id: str) -> Path:
        return self._logs.joinpath(sandbox_id, exec_id)

    async def launch(self, box: Box, request: ExecRequest, by: str | None) -> LiveExec | StoredExec:
        """Start it, or find the one that was started with the same id."""
        if request.id is None:
            return await self._begin(box, request, by)
        async with box.named_starts:
            await self.settled(box)
            known = await self._known(box, request.id)
            return known or await self._begin(box, request, by)

    async def _known(self, box: Box, exec_id: str) -> LiveExec | StoredExec | None:
        if live := box.execs.get(exec_id):
            return live
        live_in = next((other.id for other in self.boxes.values() if exec_id in other.execs), None)
        owner = live_in or await records.exec_owner(self.store, exec_id)
        if owner is None:
            return box.execs.get(exec_id)
        if owner != box.id:
            raise Conflict("this exec id is in use in another sandbox", reason="exec_id_taken")
        return box.execs.get(exec_id) or await records.one_exec(self.store, box.id, exec_id)

    async def _begin(self, box: Box, request: ExecRequest, by: str | None) -> LiveExec:
        box.require_running()
        if box.over_disk:
            await self.refuse_when_full(box)
        record = describe(box.record, request, self.settings, by)
        given = input_of(request)
        start = to_start(box.record, request, record, self.settings.limits.output)
        live = self._make_live(
            box, record, OutputLog(self.log_folder(box.id, record.id), self.settings.limits.output)
        )
        try:
            if request.background or sum(map(len, request.command)) > SMALL_COMMAND:
                await self.store.write(records.insert_exec(StoredExec(record, None)))
                live.stored = True
            guest = box.guest
            if guest is None or guest.lost:
                guest = await box.link()
            box.require_running()
            if given is not None:
                live.has_input = True
                execinput.keep(live.log.folder, given, end=not request.open_stdin)
            live.channel = guest.start(start, live)
            # At once: the guest works while we keep the books, and a caller who is told next that it was
            # started is told the truth even if we die then.
            guest.flush()
        except PaddockError as error:
            if live.has_input:
                execinput.forget(live.log.folder)
            if live.stored:
                live.abandon(error.reason, error.message)
            raise
        except asyncio.CancelledError:
            if live.stored or request.background:
                live.abandon("not_started", "the caller gave up before the command was started")
            raise
        box.execs[record.id] = live
        box.touch()
        self.events.append(
            "exec.started", sandbox_id=box.id, exec_id=record.id, data={"command": record.command[:8]}
        )
        if given is not None:
            box.own(live.feed(given, end=not request.open_stdin))
        return live

    def _make_live(self, box: Box, record: Exec, output: OutputLog) -> LiveExec:
        return LiveExec(record, output, lambda live: self._finished(box, live), stored=False)

    async def refuse_when_full(self, box: Box) -> None:
        """Measure again; raise while the sandbox is over its disk limit."""
        assert box.instance is not None
        stats = await box.runtime.stats(box.instance)
        limit = box.record.limits.disk
        if limit is not None and stats.disk is not None and stats.disk > limit:
            raise Exhausted(
                f"the sandbox uses {stats.disk} bytes of disk, and may use {limit}",
                reason="disk_limit",
                hint="remove files through the file calls, then try again",
            )
        box.over_disk = False

    def _finished(self, box: Box, live: LiveExec) -> None:
        box.touch()
        record = live.record
        outcome = {"state": record.state.value, "exit_code": record.exit_code}
        self.events.append("exec.finished", sandbox_id=box.id, exec_id=record.id, data=outcome)
        box.own(self._keep(box, live))

    async def _keep(self, box: Box, live: LiveExec) -> None:
        """Commit the final record, then let the guest forget. A full disk delays this; the guest waits."""
        if live.channel is not None:
            await asyncio.sleep(ASIDE_SECONDS)
        stored = StoredExec(live.record, live.log.inline)
        while True:
            try:
                op = records.update_exec(stored) if live.stored else records.insert_exec(stored)
                # Nobody waits for this but the guest, which keeps the exec meanwhile.
                await self.store.write(op, hurry=False)
                break
            except Unavailable as error:
                log.warning("exec_not_stored_yet", exec=live.record.id, error=error.message)
                await asyncio.sleep(AGAIN_SECONDS)
            except Conflict:
                live.stored = True
        box.execs.pop(live.record.id, None)
        if live.has_input:
            execinput.forget(live.log.folder)
        if live.channel is not None:
            live.channel.release()

    async def settled(self, box: Box) -> None:
        """After a restart some execs are known to the guest alone: wait until it has told."""
        if not box.told and box.record.state is State.RUNNING:
            await box.link()

    async def find(self, box: Box, exec_id: str) -> LiveExec | StoredExec:
        # Also for one that the store knows: only the guest knows how much of its input has arrived.
        await self.settled(box)
        found = box.execs.get(exec_id) or await records.one_exec(self.store, box.id, exec_id)
        # Its end may have been committed, or its guest come back, while the store was asked.
        found = box.execs.get(exec_id) or found
        if found is None:
            raise NotFound(
                f"there is no exec {exec_id!r} in this sandbox",
                reason="exec_not_found",
                hint="list them with: paddock execs SANDBOX",
            )
        return found

    async def reattach(self, box: Box, guest: Guest) -> None:
        """Give a returned guest's execs back to who follows them, and take up those that nobody knows."""
        seen: set[str] = set()
        for entry in list(guest.inventory):
            record = from_metadata(box.id, entry.metadata)
            if record is None or record.id in seen:
                log.warning("strange_exec_in_inventory", sandbox=box.id, channel=entry.channel)
                guest.forget(entry)
                continue
            seen.add(record.id)
            live = box.execs.get(record.id) or await self._take_up(box, record)
            if live is None:
                guest.forget(entry)
            else:
                _resume(guest, entry, live)
        for live in list(box.execs.values()):
            if live.channel is None and live.record.id not in seen:
                live.abandon("not_started", "the link was lost before the command was started")
        box.told = True

    async def take_up_stored(self, box: Box) -> None:
        """After a restart: those whose row says that they run wait for the guest's word on them."""
        for stored in await records.unfinished_execs(self.store, box.id):
            self._follow_up(box, stored.exec, stored=True)

    async def _take_up(self, box: Box, record: Exec) -> LiveExec | None:
        stored = await records.one_exec(self.store, box.id, record.id)
        if stored is not None and stored.exec.state.ended:
            return None
        return self._follow_up(box, stored.exec if stored else record, stored=stored is not None)

    def _follow_up(self, box: Box, record: Exec, *, stored: bool) -> LiveExec:
        output = OutputLog.recovered(self.log_folder(box.id, record.id), self.settings.limits.output)
        live = self._make_live(box, record, output)
        live.stored = stored
        box.execs[record.id] = live
        if (given := execinput.kept(output.folder)) is not None:
            live.has_input = True
            box.own(live.feed(given[0], end=given[1]))
        return live

    def bury(self, box: Box, stored: StoredExec, reason: str, error: str) -> None:
        self._follow_up(box, stored.exec, stored=True).abandon(reason, error)

    def cancel(self, box: Box, live: LiveExec, grace: float) -> Exec:
        if live.record.state is ExecState.CANCELING:
            raise Conflict("the exec is being canceled already", reason="exec_canceling")
        live.require_channel().kill(round(grace * 1000))
        live.record.state = ExecState.CANCELING
        self.events.append("exec.canceling", sandbox_id=box.id, exec_id=live.record.id)
        return live.record


def _resume(guest: Guest, entry: Inventory, live: LiveExec) -> None:
    try:
        live.resumed(guest.resume(entry, live, live.resume_at()))
    except GuestViolation as error:
        guest.forget(entry)
        live.abandon("guest_protocol", f"its output cannot be continued: {error.message}")
        return
    live.record.pid = entry.pid or None
    live.record.started_at = entry.started_ns / 1e9
    live.record.stdin_bytes = entry.stdin_received
