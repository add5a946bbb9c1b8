"""What processes cost: memory and CPU time, from /proc."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Every process below one, itself left out."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    pending = [pid]
    while pending:
        below = parents.get(pending.pop(), [])
        found += below
        pending += below
    return found


def memory_of(pid: int) -> int:
    """Bytes: its own pages and its share of shared ones; where that may not be read, every resident one."""
    try:
        return _field(f"/proc/{pid}/smaps_rollup", "Pss:") * 1024
    except PermissionError:
        return _field(f"/proc/{pid}/status", "VmRSS:") * 1024


def memory_of_all(pids: Iterable[int]) -> int:
    return sum(map(memory_of, pids))


def peak_of(pid: int) -> int:
    return _field(f"/proc/{pid}/status", "VmHWM:") * 1024


def reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def cpu_of_all(pids: Iterable[int]) -> float:
    """Seconds on a processor so far, of every thread."""
    return sum(_cpu(pid) for pid in pids)


def _cpu(pid: int) -> float:
    nanoseconds = 0
    with contextlib.suppress(FileNotFoundError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError):
                nanoseconds += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
    return nanoseconds / 1e9


def kernel_memory() -> int:
    """Bytes that the kernel holds for its own objects: what namespaces, mounts and cgroups are made of."""
    names = ("Slab:", "KernelStack:", "PageTables:", "Percpu:")
    return sum(_field("/proc/meminfo", name) for name in names) * 1024


def _field(path: str, name: str) -> int:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise ValueError(f"{path} has no {name}")
