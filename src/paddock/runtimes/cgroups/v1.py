"""Version 1: one hierarchy for each controller, sometimes two in one."""

from __future__ import annotations

import contextlib
import os
from functools import partial
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
    read_text,
    remove_folder,
    write,
)

PERIOD = 100_000
_LIMITS = {"memory": "memory", "cpu": "cpus", "pids": "processes"}


class CgroupsV1:
    version = 1

    def __init__(self, bases: dict[str, Path], place: str) -> None:
        self._roots = {controller: f"{base}/{place}" for controller, base in bases.items()}
        self.limits = frozenset(limit for controller, limit in _LIMITS.items() if controller in bases)
        self.can_freeze = "freezer" in bases

    def roots(self) -> list[Path]:
        return [Path(root) for root in dict.fromkeys(self._roots.values())]

    def create(self, name: str, limits: Limits) -> Group:
        wanted = {"memory": limits.memory, "cpu": limits.cpus, "pids": limits.processes}
        group = Group(
            1,
            {
                c: f"{root}/{name}"
                for c, root in self._roots.items()
                if c not in wanted or wanted[c] is not None
            },
        )
        try:
            for folder in dict.fromkeys(group.folders.values()):
                make_folder(folder, partial(os.makedirs, os.path.dirname(folder), 0o755, exist_ok=True))
            for controller, folder in group.folders.items():
                _limit(controller, folder, limits)
        except BaseException:
            for folder in group.folders.values():
                with contextlib.suppress(OSError):
                    remove_folder(folder)
            raise
        return group

    def freeze(self, group: Group) -> None:
        write(f"{group.folders['freezer']}/freezer.state", "FROZEN")

    def thaw(self, group: Group) -> None:
        for folder in group.folders.values():
            with contextlib.suppress(FileNotFoundError):
                write(f"{folder}/freezer.state", "THAWED")

    def frozen(self, group: Group) -> bool:
        return read_text(f"{group.folders['freezer']}/freezer.state").strip() == "FROZEN"

    def usage(self, group: Group) -> Usage:
        memory, pids = group.folders.get("memory"), group.folders.get("pids")
        cpuacct = group.folders.get("cpuacct")
        used = read_number(f"{memory}/memory.usage_in_bytes")
        idle = read_field(f"{memory}/memory.stat", "total_inactive_file") or 0
        processes = read_number(f"{pids}/pids.current")
        nanoseconds = read_number(f"{cpuacct}/cpuacct.usage")
        return Usage(
            memory=None if used is None else max(0, used - idle),
            memory_peak=read_number(f"{memory}/memory.max_usage_in_bytes"),
            cpu_seconds=None if nanoseconds is None else nanoseconds / 1e9,
            processes=None if processes is None else max(0, processes - RESIDENT),
            oom_kills=read_field(f"{memory}/memory.oom_control", "oom_kill"),
        )


def _limit(controller: str, folder: str, limits: Limits) -> None:
    if controller == "memory" and limits.memory is not None:
        write(f"{folder}/memory.limit_in_bytes", str(limits.memory))
        # Absent where the kernel does not count swap.
        with contextlib.suppress(FileNotFoundError):
            write(f"{folder}/memory.memsw.limit_in_bytes", str(limits.memory))
    elif controller == "cpu" and limits.cpus is not None:
        write(f"{folder}/cpu.cfs_period_us", str(PERIOD))
        write(f"{folder}/cpu.cfs_quota_us", str(max(1000, int(limits.cpus * PERIOD))))
    elif controller == "pids" and limits.processes is not None:
        write(f"{folder}/pids.max", str(limits.processes + OVERHEAD))
