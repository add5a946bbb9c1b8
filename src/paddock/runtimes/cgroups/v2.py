"""Version 2: one folder per sandbox, below a cgroup that hands its controllers down."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from paddock.runtimes.base import Limits
from paddock.runtimes.cgroups.group import (
    OVERHEAD,
    RESIDENT,
    Group,
    Usage,
    make_folder,
    read_field,
    read_number,
    remove_folder,
    write,
)

PERIOD = 100_000
_LIMITS = {"memory": "memory", "cpu": "cpus", "pids": "processes"}


class CgroupsV2:
    version = 2

    def __init__(self, base: Path, controllers: frozenset[str], place: str) -> None:
        self._base = base
        self._root = f"{base}/{place}"
        self._controllers = controllers & _LIMITS.keys()
        self.limits = frozenset(_LIMITS[controller] for controller in self._controllers)
        self.can_freeze = True

    def roots(self) -> list[Path]:
        return [Path(self._root)]

    def create(self, name: str, limits: Limits) -> Group:
        folder = f"{self._root}/{name}"
        try:
            make_folder(folder, self._make_root)
            self._limit(folder, limits)
        except BaseException:
            with contextlib.suppress(OSError):
                remove_folder(folder)
            raise
        return Group(2, {"": folder})

    def freeze(self, group: Group) -> None:
        write(f"{group.folders['']}/cgroup.freeze", "1")

    def thaw(self, group: Group) -> None:
        for folder in group.folders.values():
            with contextlib.suppress(FileNotFoundError):
                write(f"{folder}/cgroup.freeze", "0")

    def frozen(self, group: Group) -> bool:
        return read_field(f"{group.folders['']}/cgroup.events", "frozen") == 1

    def usage(self, group: Group) -> Usage:
        folder = group.folders[""]
        used = read_number(f"{folder}/memory.current")
        idle = read_field(f"{folder}/memory.stat", "inactive_file") or 0
        processes = read_number(f"{folder}/pids.current")
        microseconds = read_field(f"{folder}/cpu.stat", "usage_usec")
        return Usage(
            memory=None if used is None else max(0, used - idle),
            memory_peak=read_number(f"{folder}/memory.peak"),
            cpu_seconds=None if microseconds is None else microseconds / 1e6,
            processes=None if processes is None else max(0, processes - RESIDENT),
            oom_kills=read_field(f"{folder}/memory.events", "oom_kill"),
        )

    def _make_root(self) -> None:
        """Our own folders, each of which has to hand the controllers on to the next."""
        folder = str(self._base)
        for part in os.path.relpath(self._root, self._base).split("/"):
            folder = f"{folder}/{part}"
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o755)
            write(
                f"{folder}/cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(self._controllers))
            )

    def _limit(self, folder: str, limits: Limits) -> None:
        if limits.memory is not None and "memory" in self._controllers:
            write(f"{folder}/memory.max", str(limits.memory))
            # Absent where the kernel does not count swap.
            with contextlib.suppress(FileNotFoundError):
                write(f"{folder}/memory.swap.max", "0")
        if limits.cpus is not None and "cpu" in self._controllers:
            write(f"{folder}/cpu.max", f"{max(1000, int(limits.cpus * PERIOD))} {PERIOD}")
        if limits.processes is not None and "pids" in self._controllers:
            write(f"{folder}/pids.max", str(limits.processes + OVERHEAD))
