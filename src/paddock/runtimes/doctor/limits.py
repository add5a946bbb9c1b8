"""Probes of what holds a sandbox to its limits: each cgroup controller, the freezer, an exact disk."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from functools import partial
from pathlib import Path

from paddock import errors
from paddock.runtimes import processes
from paddock.runtimes.base import Ability, Limits
from paddock.runtimes.bwrap_remains import remove_empty
from paddock.runtimes.cgroups import Cgroups, Group, find_cgroups, remove_folder
from paddock.runtimes.disk.image import can_mount, mount_image, unmount_image, used_bytes
from paddock.runtimes.waiting import until

_SECONDS = 10.0
_FIX = "run the server as root, or as a systemd service or user session with Delegate=yes"
_LIMITS = {
    "memory": Limits(memory=64 << 20, cpus=None, processes=None),
    "cpus": Limits(memory=None, cpus=0.5, processes=None),
    "processes": Limits(memory=None, cpus=None, processes=16),
}
_NONE = Limits(memory=None, cpus=None, processes=None)


async def probe_limits() -> list[Ability]:
    """Make a cgroup with each limit, put a process in it, and freeze one."""
    key = f"probe-{os.getpid()}"
    cgroups = find_cgroups(key)
    names = [f"limit-{name}" for name in _LIMITS] + ["pause"]
    if cgroups is None:
        return [Ability(name, False, "the server may not make cgroups here", _FIX) for name in names]
    try:
        abilities = [await _probe_limit(cgroups, name, limits) for name, limits in _LIMITS.items()]
        return [*abilities, await _probe_freezer(cgroups)]
    finally:
        remove_empty(cgroups.roots())


async def _probe_limit(cgroups: Cgroups, name: str, limits: Limits) -> Ability:
    ability = f"limit-{name}"
    if name not in cgroups.limits:
        return Ability(ability, False, "no controller for it may be used here", _FIX)
    try:
        group = cgroups.create(name, limits)
        async with _Member(group):
            return Ability(ability, True, f"cgroup version {group.version}")
    except (OSError, errors.PaddockError) as problem:
        return Ability(ability, False, str(problem), _FIX)


async def _probe_freezer(cgroups: Cgroups) -> Ability:
    if not cgroups.can_freeze:
        return Ability("pause", False, "there is no freezer", _FIX)
    try:
        group = cgroups.create("freezer", _NONE)
        async with _Member(group):
            cgroups.freeze(group)
            try:
                await until(lambda: cgroups.frozen(group), _SECONDS)
            finally:
                cgroups.thaw(group)
        return Ability("pause", True, f"cgroup version {group.version}")
    except (OSError, TimeoutError) as problem:
        return Ability("pause", False, str(problem) or "the process did not freeze", _FIX)


class _Member:
    """A sleeping process inside a group; at the end both are gone."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._pid = 0

    async def __aenter__(self) -> None:
        try:
            join = "".join(f'echo 0 > "{file}" && ' for file in self._group.join_files())
            null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
            try:
                descriptors = {0: null, 1: null, 2: null}
                self._pid = processes.spawn("/bin/sh", ["sh", "-c", f"{join}exec sleep 60"], descriptors)
            finally:
                os.close(null)
            await until(self._is_inside, _SECONDS)
        except BaseException:
            await self.__aexit__()
            raise

    def _is_inside(self) -> bool:
        if os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = 0
            raise OSError("a process could not be moved into a new cgroup")
        return self._group.holds(self._pid)

    async def __aexit__(self, *_: object) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            await asyncio.to_thread(os.waitpid, self._pid, 0)
        for folder in self._group.folders.values():
            await until(partial(remove_folder, folder), _SECONDS)


async def probe_exact_disk() -> Ability:
    if os.geteuid() != 0:
        return Ability("limit-disk-exact", False, "only root may mount disk images", "run the server as root")
    if not can_mount():
        fix = "install e2fsprogs, and load the kernel's loop module (`modprobe loop`)"
        return Ability("limit-disk-exact", False, "mkfs.ext4 or loop devices are missing", fix)
    return await asyncio.to_thread(_try_image)


def _try_image() -> Ability:
    with tempfile.TemporaryDirectory() as folder:
        image, target = Path(folder, "image"), Path(folder, "target")
        began = time.monotonic()
        try:
            mount_image(image, target, 16 << 20, 0)
            used_bytes(target)
        except errors.PaddockError as problem:
            fix = "load the kernel's loop module (`modprobe loop`); in a container it needs --privileged"
            return Ability("limit-disk-exact", False, problem.message, fix)
        finally:
            unmount_image(image, target)
        return Ability(
            "limit-disk-exact", True, f"loop-mounted ext4, {(time.monotonic() - began) * 1000:.0f} ms"
        )
