"""One sandbox's cgroups, and what the two versions of the interface have in common."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from paddock.runtimes.base import Limits

OVERHEAD = 4
"""Processes of ours inside every limit: bwrap, the guest, and its helpers for one exec and one file call."""
RESIDENT = 2
"""Those of them that are always there, and that nobody wants to see counted."""


_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Usage:
    memory: int | None = None
    memory_peak: int | None = None
    cpu_seconds: float | None = None
    processes: int | None = None
    oom_kills: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """The folders of one sandbox's cgroups, by controller ("" for version 2, which has one for all)."""

    version: int
    folders: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {"version": self.version, "folders": self.folders}

    @classmethod
    def from_dict(cls, data: dict[str, Any] | None) -> Group:
        if not data:
            return cls(0)
        return cls(int(data["version"]), {str(name): str(folder) for name, folder in data["folders"].items()})

    def join_files(self) -> list[str]:
        """What a process has to write 0 to, to enter. In version 1 `tasks` is the much faster way."""
        name = "tasks" if self.version == 1 else "cgroup.procs"
        return [f"{folder}/{name}" for folder in dict.fromkeys(self.folders.values())]

    def pids(self) -> set[int]:
        """Every process in any of the cgroups."""
        return set().union(*(_pids_in(folder) for folder in set(self.folders.values())))

    def holds(self, pid: int) -> bool:
        """Whether a process is in all of the cgroups."""
        return all(pid in _pids_in(folder) for folder in set(self.folders.values()))


def _pids_in(folder: str) -> set[int]:
    try:
        return {int(line) for line in read_text(f"{folder}/cgroup.procs").split()}
    except FileNotFoundError:
        return set()


class Cgroups(Protocol):
    """One version of the interface, as this host offers it."""

    version: int
    limits: frozenset[str]
    """Which of memory, cpus, processes it holds a sandbox to."""
    can_freeze: bool

    def create(self, name: str, limits: Limits) -> Group:
        """Make the cgroups and set the limits. Leaves nothing behind when it fails."""

    def freeze(self, group: Group) -> None:
        """Begin to freeze; `frozen` tells when it is done."""

    def thaw(self, group: Group) -> None: ...

    def frozen(self, group: Group) -> bool: ...

    def usage(self, group: Group) -> Usage: ...

    def roots(self) -> list[Path]:
        """Our own folders, in which each sandbox has one by its name."""


def write(path: str, value: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def read_text(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()


def read_number(path: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(read_text(path))
    return None


def read_field(path: str, name: str) -> int | None:
    """A number from a file of `name value` lines."""
    with contextlib.suppress(OSError, ValueError):
        for line in read_text(path).splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return None


def make_folder(folder: str, make_parents: Callable[[], object]) -> None:
    """Make a cgroup. Its parents may be made, and removed by somebody who sees them empty, at any time."""
    for _ in range(_ATTEMPTS):
        try:
            os.mkdir(folder, 0o755)
            return
        except FileNotFoundError:
            with contextlib.suppress(FileNotFoundError):
                make_parents()
        except FileExistsError:
            # Left by a sandbox of this name whose removal was cut short.
            if not remove_folder(folder):
                raise
    raise FileNotFoundError(errno.ENOENT, "the cgroup's parents keep being removed", folder)


def remove_folder(folder: str) -> bool:
    """Remove a cgroup with whatever cgroups are below it. False while something still runs there."""
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError as problem:
        if problem.errno not in (errno.EBUSY, errno.ENOTEMPTY):
            raise
        return _remove_below(folder)
    return True


def remove_empty_parents(folder: str) -> None:
    """The server's own cgroup, and the one that all servers of the host share, go with the last in them."""
    for _ in range(2):
        folder = os.path.dirname(folder)
        try:
            os.rmdir(folder)
        except OSError:
            return


def _remove_below(folder: str) -> bool:
    with contextlib.suppress(OSError):
        with os.scandir(folder) as entries:
            below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        if below and all(remove_folder(path) for path in below):
            os.rmdir(folder)
            return True
    return not os.path.exists(folder)
