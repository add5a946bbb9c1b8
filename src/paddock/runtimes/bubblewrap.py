"""The `bubblewrap` runtime: namespaces made by bwrap, limits by cgroups, no daemon and no image.

A create is: folders, cgroups, one posix_spawn of `paddock-launch`, which becomes bwrap, which starts the
guest. Nothing of it depends on the server living on, and the handle holds what finds it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from paddock import errors
from paddock.runtimes import bwrap_remains as remains
from paddock.runtimes import processes
from paddock.runtimes.base import Ability, Enforcement, Instance, Limits, Spec, Stats
from paddock.runtimes.bwrap_args import FIRST_FILTER_FD, launch_args, sandbox_args
from paddock.runtimes.bwrap_folders import (
    data_folder,
    disk_used,
    host_user,
    image_file,
    lay_out,
    remove_files,
    run_folder,
)
from paddock.runtimes.bwrap_host import Host, check_passable, prepare_host
from paddock.runtimes.bwrap_start import Started, full, start
from paddock.runtimes.cgroups import (
    Cgroups,
    Group,
    find_cgroups,
    instance_key,
    remove_empty_parents,
    remove_folder,
)
from paddock.runtimes.cgroups.group import OVERHEAD
from paddock.runtimes.disk.image import can_mount, mount_image
from paddock.runtimes.processes import Process, boot_id
from paddock.runtimes.waiting import until

_GONE_SECONDS = 60.0
_FREEZE_SECONDS = 20.0
_BWRAP_SECONDS = 5.0
_GUEST_FILES = 64
Result = TypeVar("Result")


@dataclass(slots=True)
class _Live:
    """A sandbox whose processes this server watches."""

    group: Group
    guest: Process
    guest_fd: int
    bwrap: Process
    bwrap_fd: int | None


class BubblewrapRuntime:
    name = "bubblewrap"

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir.resolve()
        self._key = instance_key(data_dir)
        self._cgroups: Cgroups | None = find_cgroups(self._key)
        self._host: Host | None = None
        self._preparing = asyncio.Lock()
        self._live: dict[str, _Live] = {}

    # -- what this host can do

    async def probe(self) -> list[Ability]:
        from paddock.runtimes.doctor import diagnose_bubblewrap

        return await diagnose_bubblewrap(self._data_dir)

    def enforcement(self, limits: Limits, *, disk_exact: bool) -> dict[str, Enforcement]:
        """How well each limit that is asked for would hold on this host."""
        held = self._cgroups.limits if self._cgroups else frozenset()
        asked = {"memory": limits.memory, "cpus": limits.cpus, "processes": limits.processes}
        found = {
            name: Enforcement.FULL if name in held else Enforcement.NONE
            for name, value in asked.items()
            if value is not None
        }
        if found.get("processes") is Enforcement.NONE and host_user(0) is not None:
            # The user of a sandbox has no other processes: the limit per user is one per sandbox.
            found["processes"] = Enforcement.PARTIAL
        if limits.disk is not None:
            found["disk"] = Enforcement.FULL if disk_exact and can_mount() else Enforcement.PARTIAL
        return {**found, "open_files": Enforcement.FULL}

    async def prepare(self) -> None:
        await self._prepared()

    async def _prepared(self) -> Host:
        if self._host is None:
            async with self._preparing:
                if self._host is None:
                    self._host = await asyncio.to_thread(self._prepare)
        return self._host

    def _prepare(self) -> Host:
        host = prepare_host(self._data_dir)
        if self._cgroups is not None:
            remains.record_folders(self._data_dir / "system", self._cgroups.roots())
        return host

    # -- the life of a sandbox

    async def create(self, spec: Spec) -> Instance:
        host = await self._prepared()
        handle: dict[str, Any] = {"id": spec.id, "boot": boot_id(), "slot": spec.slot}
        try:
            started, group, exact = await self._make(host, spec, handle)
        except BaseException:
            await _to_its_end(self.destroy(spec, handle))
            raise
        self._watch(spec.id, group, started)
        held = self.enforcement(spec.limits, disk_exact=exact)
        handle["guest"] = started.guest.as_list()
        handle["bwrap"] = started.bwrap.as_list()
        handle["enforcement"] = {name: str(value) for name, value in held.items()}
        return self._instance(spec, handle, started.link)

    async def _make(self, host: Host, spec: Spec, handle: dict[str, Any]) -> tuple[Started, Group, bool]:
        user = host_user(spec.slot)
        if user is not None:
            check_passable(spec.folder.parent)
        exact = spec.disk_exact and spec.limits.disk is not None and spec.storage is None and can_mount()
        if exact and spec.limits.disk is not None:
            handle["exact"] = True
            owner = os.geteuid() if user is None else user
            await asyncio.to_thread(mount_image, image_file(spec), data_folder(spec), spec.limits.disk, owner)
        try:
            places = lay_out(spec, host.guest)
            group = self._cgroups.create(spec.id, spec.limits) if self._cgroups else Group(0)
        except OSError as problem:
            raise full(problem) from problem
        handle["cgroup"] = group.as_dict()
        last_fd = FIRST_FILTER_FD + len(host.filters) - 1
        argv = [
            *launch_args(
                join=group.join_files(),
                user=user,
                open_files=max(_GUEST_FILES, spec.limits.open_files),
                processes=self._user_processes(spec.limits, user),
                last_fd=last_fd,
                program=host.bwrap,
                title=remains.title(self._key, spec.id),
            ),
            *host.args,
            *sandbox_args(places, spec.hostname, spec.limits.memory),
        ]
        return await start(host.launch, argv, host.filters), group, exact

    def _user_processes(self, limits: Limits, user: int | None) -> int | None:
        """The limit on the user's processes, where no cgroup counts them and the user is the sandbox's."""
        if (
            limits.processes is None
            or user is None
            or (self._cgroups and "processes" in self._cgroups.limits)
        ):
            return None
        return limits.processes + OVERHEAD

    def _watch(self, sandbox: str, group: Group, started: Started) -> None:
        self._live[sandbox] = _Live(group, started.guest, started.guest_fd, started.bwrap, started.bwrap_fd)
        asyncio.get_running_loop().add_reader(started.bwrap_fd, self._bwrap_ended, sandbox)

    def _bwrap_ended(self, sandbox: str) -> None:
        """bwrap is our child: take its exit status, so that no zombie stays."""
        live = self._live.get(sandbox)
        if live is not None and live.bwrap_fd is not None:
            asyncio.get_running_loop().remove_reader(live.bwrap_fd)
            processes.reap(live.bwrap.pid)
            os.close(live.bwrap_fd)
            live.bwrap_fd = None

    def _forget(self, sandbox: str) -> None:
        live = self._live.pop(sandbox, None)
        if live is None:
            return
        os.close(live.guest_fd)
        if live.bwrap_fd is not None:
            asyncio.get_running_loop().remove_reader(live.bwrap_fd)
            processes.reap(live.bwrap.pid)
            os.close(live.bwrap_fd)

    async def recover(self, spec: Spec, handle: dict[str, Any]) -> Instance | None:
        if spec.id not in self._live:
            guest = _process(handle, "guest")
            guest_fd = processes.open_process(guest) if guest else None
            if guest is None or guest_fd is None:
                return None
            # bwrap is no longer our child; it may even be gone while the guest lives on.
            bwrap = _process(handle, "bwrap") or guest
            bwrap_fd = processes.open_process(bwrap) if bwrap != guest else None
            group = Group.from_dict(handle.get("cgroup"))
            self._live[spec.id] = _Live(group, guest, guest_fd, bwrap, bwrap_fd)
            if bwrap_fd is not None:
                asyncio.get_running_loop().add_reader(bwrap_fd, self._bwrap_ended, spec.id)
        return self._instance(spec, handle, None)

    def _instance(self, spec: Spec, handle: dict[str, Any], link: Any) -> Instance:
        user = host_user(spec.slot)
        return Instance(
            handle={
                **handle,
                "folder": str(spec.folder),
                "storage": str(spec.storage) if spec.storage else None,
            },
            pid=self._live[spec.id].guest.pid,
            link=link,
            socket_folder=run_folder(spec),
            peer_uid=os.geteuid() if user is None else user,
            enforcement={name: Enforcement(value) for name, value in handle["enforcement"].items()},
        )

    def exited(self, instance: Instance) -> bool:
        live = self._live.get(instance.handle["id"])
        return live is None or processes.has_ended(live.guest_fd)

    async def wait(self, instance: Instance) -> None:
        live = self._live.get(instance.handle["id"])
        if live is not None:
            await processes.wait_readable(live.guest_fd)

    # -- pausing

    async def pause(self, instance: Instance) -> None:
        cgroups, group = self._freezer(instance)
        try:
            await until(lambda: self._is_frozen(cgroups, group), _FREEZE_SECONDS)
        except TimeoutError:
            cgroups.thaw(group)
            raise errors.Timeout(
                "the sandbox's processes did not freeze", reason="pause_timeout", hint="try again"
            ) from None
        except BaseException:
            cgroups.thaw(group)
            raise

    def _is_frozen(self, cgroups: Cgroups, group: Group) -> bool:
        """Asks again each time: version 1 gives up on a process that was just being started."""
        cgroups.freeze(group)
        return cgroups.frozen(group)

    async def resume(self, instance: Instance) -> None:
        cgroups, group = self._freezer(instance)
        cgroups.thaw(group)

    def _freezer(self, instance: Instance) -> tuple[Cgroups, Group]:
        group = Group.from_dict(instance.handle.get("cgroup"))
        if (
            self._cgroups is None
            or not self._cgroups.can_freeze
            or not ({"freezer", ""} & group.folders.keys())
        ):
            raise errors.Unsupported(
                "this host gives the server no cgroup that can freeze processes",
                reason="pause_unsupported",
                hint="run the server as root, or in a systemd user session with delegated cgroups",
            )
        return self._cgroups, group

    # -- the end

    async def kill(self, instance: Instance) -> None:
        await self._kill(instance.handle["id"], instance.handle)

    async def _kill(self, sandbox: str, handle: dict[str, Any]) -> None:
        """Until nothing is left. The guest takes its pid namespace with it."""
        group = Group.from_dict(handle.get("cgroup"))
        if self._cgroups is not None and group.folders:
            # A frozen process of version 1 does not die before it is thawed.
            self._cgroups.thaw(group)
        live = self._live.get(sandbox)
        try:
            async with asyncio.timeout(_GONE_SECONDS):
                if live is not None:
                    processes.kill(live.guest_fd)
                    await processes.wait_readable(live.guest_fd)
                    await self._kill_bwrap(live)
                await self._kill_rest(group, [_process(handle, "guest"), _process(handle, "bwrap")])
        except TimeoutError:
            raise errors.Timeout(
                f"processes of sandbox {sandbox} do not end",
                reason="kill_timeout",
                hint="one of them may hang in the kernel, for example on a broken disk; try again",
            ) from None

    async def _kill_bwrap(self, live: _Live) -> None:
        """It ends by itself when it has the guest's exit status. Killed before that, it leaves a zombie."""
        if live.bwrap_fd is None:
            return
        own = os.dup(live.bwrap_fd)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BWRAP_SECONDS):
                    await processes.wait_readable(own)
            processes.kill(own)
            await processes.wait_readable(own)
            processes.reap(live.bwrap.pid)
        finally:
            os.close(own)

    async def _kill_rest(self, group: Group, known: list[Process | None]) -> None:
        pause = 0.001
        while True:
            here = [found for pid in group.pids() if (found := processes.identify(pid)) is not None]
            left = [
                fd
                for process in (*here, *known)
                if process and (fd := processes.open_process(process)) is not None
            ]
            if not left:
                return
            for fd in left:
                processes.kill(fd)
                os.close(fd)
            await asyncio.sleep(pause)
            pause = min(0.05, pause * 2)

    async def destroy(self, spec: Spec, handle: dict[str, Any] | None) -> None:
        whole = handle is not None and "guest" in handle
        handle = {**(handle or {}), "cgroup": self._group_of(spec, handle).as_dict()}
        await self._kill(spec.id, handle)
        if not whole:
            await self._kill_titled(spec.id)
        self._forget(spec.id)
        await self._remove_groups(Group.from_dict(handle["cgroup"]))
        await asyncio.to_thread(remove_files, spec)
        if not self._live:
            remains.remove_empty(self._cgroup_roots())

    def _group_of(self, spec: Spec, handle: dict[str, Any] | None) -> Group:
        """The sandbox's cgroups: as the handle says, or wherever ours have been."""
        group = Group.from_dict((handle or {}).get("cgroup"))
        if group.folders:
            return group
        roots = self._cgroup_roots()
        folders = {str(root): f"{root}/{spec.id}" for root in roots if (root / spec.id).is_dir()}
        return Group(self._cgroups.version if self._cgroups else 1, folders)

    def _cgroup_roots(self) -> list[Path]:
        """Where our cgroups are, and where they were when the server ran in another cgroup."""
        now = self._cgroups.roots() if self._cgroups else []
        return list(dict.fromkeys([*now, *remains.recorded_folders(self._data_dir / "system")]))

    async def _kill_titled(self, sandbox: str) -> None:
        """For a sandbox without a whole handle: its bwrap, found by title, and what bwrap has started."""
        while True:
            found = [process for name, process in remains.titled_processes(self._key) if name == sandbox]
            if not found:
                return
            everything = [child for process in found for child in processes.children(process.pid)] + found
            await self._kill_rest(Group(0), list(everything))

    async def _remove_groups(self, group: Group) -> None:
        """The kernel lets go of a cgroup a moment after its last process."""
        try:
            for folder in dict.fromkeys(group.folders.values()):
                await until(partial(remove_folder, folder), _GONE_SECONDS)
                remove_empty_parents(folder)
        except TimeoutError:
            raise errors.Timeout(
                "a cgroup of the sandbox cannot be removed", reason="cgroup_not_removed", hint="try again"
            ) from None

    # -- what there is

    async def stats(self, instance: Instance) -> Stats:
        handle = instance.handle
        group = Group.from_dict(handle.get("cgroup"))
        usage = self._cgroups.usage(group) if self._cgroups and group.folders else None
        storage = Path(handle["storage"]) if handle["storage"] else None
        spec = Spec(handle["id"], Path(handle["folder"]), handle["slot"], storage=storage)
        disk = await asyncio.to_thread(disk_used, spec, exact=bool(handle.get("exact")))
        if usage is None:
            return Stats(disk=disk)
        return Stats(
            usage.memory, usage.memory_peak, usage.cpu_seconds, usage.processes, disk, usage.oom_kills
        )

    async def orphans(self, known: set[str]) -> list[str]:
        return sorted(await asyncio.to_thread(self._found) - known)

    def _found(self) -> set[str]:
        found = {sandbox for sandbox, _ in remains.titled_processes(self._key)}
        found |= remains.mounted_sandboxes(self._data_dir)
        for root in self._cgroup_roots():
            with contextlib.suppress(OSError):
                found.update(entry.name for entry in root.iterdir() if entry.is_dir())
        return found


def _process(handle: dict[str, Any], name: str) -> Process | None:
    """A process of the handle, if this is still the boot it was of."""
    if handle.get("boot") != boot_id() or name not in handle:
        return None
    pid, started = handle[name]
    return Process(int(pid), int(started))


async def _to_its_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Finish cleaning up even when the caller is cancelled, again, meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    return task.result()
