"""The core: what every door calls."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress

from paddock.config import DataDir, Settings
from paddock.errors import Conflict, Invalid, PaddockError, Timeout
from paddock.events.log import EventLog
from paddock.runtimes.base import Preparable, Runtime
from paddock.sandboxes import records
from paddock.sandboxes.box import Box
from paddock.sandboxes.boxes import Boxes
from paddock.sandboxes.execlog import Chunk, Gap, LogReader, OutputLog
from paddock.sandboxes.execs import LiveExec
from paddock.sandboxes.files import Files
from paddock.sandboxes.model import Exec, ExecResult, ExecState, Sandbox, SandboxStats, State
from paddock.sandboxes.reaper import Reaper
from paddock.sandboxes.records import StoredExec
from paddock.sandboxes.recovery import recover
from paddock.sandboxes.requests import CreateSandbox, ExecRequest, UpdateSandbox
from paddock.store import Store

RESULT_LIMIT = 8 << 20


class Sandboxes(Boxes):
    """`ref` is a sandbox's id or name."""

    def __init__(
        self,
        *,
        settings: Settings,
        store: Store,
        events: EventLog,
        runtimes: Mapping[str, Runtime],
        data: DataDir,
    ) -> None:
        super().__init__(settings, store, events, data, runtimes)
        self.files = Files(self)
        self._reaper = Reaper(self)
        self._preparing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Find again what an earlier server left."""
        await recover(self)
        self._reaper.start()
        self._preparing = asyncio.get_running_loop().create_task(self._prepare())

    async def _prepare(self) -> None:
        runtime = self.runtimes.get(self.settings.default_runtime)
        if runtime is not None and isinstance(runtime, Preparable):
            with suppress(PaddockError, OSError):
                await runtime.prepare()

    async def close(self) -> None:
        """Let go of the sandboxes. They live on."""
        await self._reaper.close()
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.gather(self._preparing, return_exceptions=True)
        await asyncio.gather(*(box.end_tasks() for box in self.boxes.values()))
        for box in self.boxes.values():
            if box.guest is not None:
                box.guest.close()

    async def create(self, request: CreateSandbox, *, by: str | None = None) -> Sandbox:
        return (await self.make(request, by)).view()

    def get(self, ref: str) -> Sandbox:
        return self.box(ref).view()

    def list(
        self,
        *,
        states: Collection[State] = (),
        labels: Mapping[str, str] | None = None,
        tenant: str | None = None,
        name: str | None = None,
        limit: int = 1000,
        after: str | None = None,
    ) -> Sequence[Sandbox]:
        """Oldest first. `after` is the `cursor` of the last one of the page before."""
        found = []
        for box in sorted(self.boxes.values(), key=lambda box: _place(box.record)):
            record = box.record
            if (
                record.state is not State.DELETED
                and (not states or record.state in states)
                and (tenant is None or record.tenant == tenant)
                and (name is None or record.name == name)
                and all(record.labels.get(key) == value for key, value in (labels or {}).items())
            ):
                found.append(box)
        if after is not None:
            place = _parse_cursor(after)
            found = [box for box in found if _place(box.record) > place]
        return [box.view() for box in found[:limit]]

    async def update(self, ref: str, request: UpdateSandbox) -> Sandbox:
        box = self.box(ref)
        async with box.lock:
            # It may have been deleted while we waited, and must not take a name then.
            self.box(box.id)
            given = request.model_fields_set
            changes = {name: getattr(request, name) for name in given}
            for name in ("labels", "metadata"):
                if name in given and changes[name] is None:
                    changes[name] = {}
            now = time.time()
            if "ttl" in given:
                changes["expires_at"] = now + request.ttl if request.ttl else None
            old, tenant = box.record.name, box.record.tenant
            renamed = "name" in given and request.name != old
            if renamed and request.name is not None:
                if (tenant, request.name) in self._names:
                    raise Conflict(f"there is a sandbox named {request.name!r} already", reason="name_taken")
                self._names[tenant, request.name] = box.id
            record = box.record.model_copy(update={**changes, "updated_at": now})
            try:
                await self.store.write(records.update_sandbox(record))
            except BaseException:
                if renamed and request.name is not None:
                    del self._names[tenant, request.name]
                raise
            if renamed and old is not None:
                self._names.pop((tenant, old), None)
            box.record = record
            self._announce(box, "sandbox.updated")
            return box.view()

    async def pause(self, ref: str) -> Sandbox:
        box = self.box(ref)
        await self.pause_box(box)
        return box.view()

    async def resume(self, ref: str) -> Sandbox:
        box = self.box(ref)
        await self.resume_box(box)
        return box.view()

    async def stop(self, ref: str, *, reason: str = "requested") -> Sandbox:
        box = self.box(ref)
        await self.stop_box(box, reason)
        return box.view()

    async def delete(self, ref: str) -> Sandbox:
        return (await self.delete_box(self.box(ref))).public()

    async def stats(self, ref: str) -> SandboxStats:
        box = self.box(ref)
        running = sum(not live.ended for live in box.execs.values())
        if box.instance is None:
            return SandboxStats(execs_running=running)
        stats = await box.runtime.stats(box.instance)
        return SandboxStats(
            memory=stats.memory,
            memory_peak=stats.memory_peak,
            cpu_seconds=stats.cpu_seconds,
            processes=stats.processes,
            disk=stats.disk,
            oom_kills=stats.oom_kills,
            execs_running=running,
        )

    async def start_exec(self, ref: str, request: ExecRequest, *, by: str | None = None) -> Exec:
        return _record(await self.launch(self.box(ref), request, by))

    async def run_exec(
        self, ref: str, request: ExecRequest, *, by: str | None = None, limit: int = RESULT_LIMIT
    ) -> ExecResult:
        """Start it and wait for its end. A caller who gives up takes the process along."""
        box = self.box(ref)
        found = await self.launch(box, request, by)
        if isinstance(found, LiveExec):
            try:
                await found.wait()
            except asyncio.CancelledError:
                if not found.ended and found.record.state is ExecState.RUNNING:
                    with suppress(PaddockError):
                        self.cancel(box, found, 0)
                raise
        return _result(_record(found), self._log_of(box.id, found), limit)

    async def get_exec(self, ref: str, exec_id: str) -> Exec:
        return _record(await self.find(self.box(ref), exec_id))

    async def list_execs(
        self, ref: str, *, states: Collection[ExecState] = (), limit: int = 100
    ) -> Sequence[Exec]:
        """Newest first."""
        box = self.box(ref)
        await self.settled(box)
        stored = await records.some_execs(self.store, box.id, states, limit)
        found = {one.exec.id: one.exec for one in stored if one.exec.id not in box.execs}
        for live in box.execs.values():
            if not states or live.record.state in states:
                found[live.record.id] = live.record
        return sorted(found.values(), key=lambda one: (-one.created_at, one.id))[:limit]

    async def wait_exec(self, ref: str, exec_id: str, timeout: float | None = None) -> Exec:
        found = await self.find(self.box(ref), exec_id)
        if isinstance(found, LiveExec):
            try:
                async with asyncio.timeout(timeout):
                    await found.wait()
            except TimeoutError:
                raise Timeout("the exec is still running", reason="timeout", hint="wait again") from None
        return _record(found)

    async def _live(self, ref: str, exec_id: str) -> tuple[Box, LiveExec]:
        box = self.box(ref)
        found = await self.find(box, exec_id)
        if isinstance(found, StoredExec) or found.ended:
            raise Conflict("the exec has ended", reason="exec_ended")
        box.require_running()
        return box, found

    async def cancel_exec(self, ref: str, exec_id: str, *, grace: float = 2.0) -> Exec:
        box, live = await self._live(ref, exec_id)
        return self.cancel(box, live, grace)

    async def signal_exec(self, ref: str, exec_id: str, number: int, *, tree: bool = False) -> Exec:
        _, live = await self._live(ref, exec_id)
        live.require_channel().signal(number, tree)
        return live.record

    async def write_stdin(self, ref: str, exec_id: str, data: bytes) -> Exec:
        _, live = await self._live(ref, exec_id)
        await live.write(data)
        return live.record

    async def close_stdin(self, ref: str, exec_id: str) -> Exec:
        _, live = await self._live(ref, exec_id)
        await live.require_channel().end_input()
        return live.record

    async def resize_exec(self, ref: str, exec_id: str, rows: int, columns: int) -> Exec:
        _, live = await self._live(ref, exec_id)
        if not live.record.terminal:
            raise Conflict("the exec has no terminal", reason="no_terminal")
        live.require_channel().resize(rows, columns)
        return live.record

    async def output(
        self, ref: str, exec_id: str, *, after: int = 0, follow: bool = True
    ) -> AsyncIterator[Chunk | Gap]:
        """Everything behind the position `after`; with `follow` until the exec has ended."""
        box = self.box(ref)
        found = await self.find(box, exec_id)
        if isinstance(found, LiveExec) and follow:
            async for piece in found.follow(after):
                yield piece
            return
        reader = LogReader(self._log_of(box.id, found), after)
        try:
            while pieces := reader.read():
                for piece in pieces:
                    yield piece
        finally:
            reader.close()

    def _log_of(self, sandbox_id: str, found: LiveExec | StoredExec) -> OutputLog:
        if isinstance(found, LiveExec):
            return found.log
        folder = self.log_folder(sandbox_id, found.exec.id)
        if found.output is not None:
            return OutputLog.of_inline(folder, found.output)
        return OutputLog.recovered(folder, self.settings.limits.output)


def _place(sandbox: Sandbox) -> tuple[float, str]:
    return sandbox.created_at, sandbox.id


def cursor(sandbox: Sandbox) -> str:
    """Where a listing goes on, whatever has become of this sandbox meanwhile."""
    return f"{sandbox.created_at!r}~{sandbox.id}"


def _parse_cursor(text: str) -> tuple[float, str]:
    created_at, _, sandbox_id = text.partition("~")
    try:
        return float(created_at), sandbox_id
    except ValueError:
        raise Invalid("this is not the `next` of an earlier page", reason="bad_cursor") from None


def _record(found: LiveExec | StoredExec) -> Exec:
    return found.record if isinstance(found, LiveExec) else found.exec


def _result(record: Exec, log: OutputLog, limit: int) -> ExecResult:
    parts: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    reader, taken, truncated = LogReader(log, 0), 0, False
    while not truncated and (pieces := reader.read()):
        for piece in pieces:
            if isinstance(piece, Gap):
                truncated = True
                continue
            data = piece.data[: limit - taken]
            truncated = truncated or len(data) < len(piece.data)
            parts[piece.stream].append(data)
            taken += len(data)
    reader.close()
    stdout, stderr = b"".join(parts["stdout"]), b"".join(parts["stderr"])
    fields = dict(record)
    try:
        fields |= {"stdout": stdout.decode(), "stderr": stderr.decode(), "encoding": "utf-8"}
    except UnicodeDecodeError:
        fields |= {
            "stdout": b64encode(stdout).decode(),
            "stderr": b64encode(stderr).decode(),
            "encoding": "base64",
        }
    return ExecResult.model_construct(**fields, truncated=truncated)
