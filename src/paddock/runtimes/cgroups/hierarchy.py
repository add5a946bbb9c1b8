"""Where this host lets us make cgroups: read from /proc, decided without changing anything."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

CONTROLLERS = ("memory", "cpu", "cpuacct", "pids", "freezer")


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Folders below which our own may be made."""

    v1: dict[str, Path] = field(default_factory=dict)
    """For each controller of version 1, the server's own cgroup."""
    v2: Path | None = None
    """A cgroup of version 2 whose children get controllers."""
    v2_controllers: frozenset[str] = frozenset()


def find_hierarchies(proc: Path = Path("/proc/self")) -> Hierarchies:
    mounts = _mounts((proc / "mountinfo").read_text())
    own = _own_groups((proc / "cgroup").read_text())
    v1: dict[str, Path] = {}
    for mount in mounts:
        for controller in CONTROLLERS:
            if mount.version == 1 and controller in mount.options and controller not in v1:
                folder = mount.locate(own.get(controller, "/"))
                if folder is not None and os.access(folder, os.W_OK):
                    v1[controller] = folder
    for mount in mounts:
        folder = mount.locate(own.get("", "/")) if mount.version == 2 else None
        if folder is not None:
            parent, controllers = _nearest_v2(folder, mount.folder)
            if parent is not None:
                return Hierarchies(v1, parent, controllers)
    return Hierarchies(v1)


@dataclass(frozen=True, slots=True)
class _Mount:
    version: int
    root: str
    folder: Path
    options: frozenset[str]

    def locate(self, group: str) -> Path | None:
        """The folder of a cgroup, which /proc names from the hierarchy's root and not from the mount's."""
        inside = os.path.relpath(group, self.root)
        if inside.startswith(".."):
            return None
        folder = self.folder / inside
        return folder if folder.is_dir() else None


def _mounts(text: str) -> list[_Mount]:
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if kind[0] in ("cgroup", "cgroup2"):
            version = 2 if kind[0] == "cgroup2" else 1
            found.append(_Mount(version, fields[3], Path(fields[4]), frozenset(kind[2].split(","))))
    return found


def _own_groups(text: str) -> dict[str, str]:
    groups: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, group = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = group
    return groups


def _nearest_v2(own: Path, top: Path) -> tuple[Path | None, frozenset[str]]:
    """The nearest cgroup, from the server's own upwards, whose children get controllers and may be ours.

    The server's own usually cannot be it: a cgroup with processes in it may not hand controllers to children.
    """
    folder = own
    while True:
        controllers = _handed_down(folder)
        if {"memory", "pids"} <= controllers and _may_add(folder):
            return folder, controllers
        if folder == top or top not in folder.parents:
            return None, frozenset()
        folder = folder.parent


def _handed_down(folder: Path) -> frozenset[str]:
    with contextlib.suppress(OSError):
        handed = set((folder / "cgroup.subtree_control").read_text().split())
        available = set((folder / "cgroup.controllers").read_text().split())
        wanted = (available & {"memory", "pids", "cpu"}) - handed
        if wanted and _delegated(folder) and not (folder / "cgroup.procs").read_text().strip():
            with contextlib.suppress(OSError):
                (folder / "cgroup.subtree_control").write_text(
                    " ".join(f"+{name}" for name in sorted(wanted))
                )
                handed |= wanted
        return frozenset(handed)
    return frozenset()


def _delegated(folder: Path) -> bool:
    """Whether systemd gave this cgroup to us to arrange (Delegate=yes)."""
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _may_add(folder: Path) -> bool:
    # Moving a process in takes write access to the common ancestor's list of processes as well.
    return os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)
