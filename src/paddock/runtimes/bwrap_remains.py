"""Finds what a sandbox left on the host: processes by title, cgroups and mounts by folder.

The title is argv[0] of bwrap. A sandbox's own processes cannot pass for another's: they live in a pid
namespace of their own, and only processes of the server's are looked at.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from paddock.runtimes import processes
from paddock.runtimes.base import UID_BASE
from paddock.runtimes.processes import Process

_RECORD = "cgroup-folders"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""What may be taken for a sandbox's id: it becomes the name of a folder to remove."""


def title(key: str, sandbox: str) -> str:
    return f"paddock:{key}:{sandbox}"


def titled_processes(key: str) -> Iterator[tuple[str, Process]]:
    """(sandbox, process) of every bwrap of this data folder that runs, half-started ones too."""
    prefix = title(key, "").encode()
    namespace = os.readlink("/proc/self/ns/pid")
    user = os.geteuid()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):
            owner = os.stat(f"/proc/{name}").st_uid
            if owner != user and not (user == 0 and owner >= UID_BASE):
                continue
            with open(f"/proc/{name}/cmdline", "rb") as file:
                first = file.read(len(prefix) + 256).split(b"\0", 1)[0]
            if not first.startswith(prefix) or os.readlink(f"/proc/{name}/ns/pid") != namespace:
                continue
            sandbox = first.removeprefix(prefix).decode(errors="replace")
            process = processes.identify(int(name))
            if process is not None and _NAME.fullmatch(sandbox):
                yield sandbox, process


def mounted_sandboxes(data_dir: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> set[str]:
    """Sandboxes whose exact disk is still mounted."""
    found = set()
    for line in mountinfo.read_text(errors="surrogateescape").splitlines():
        place = Path(line.split(" ", 5)[4])
        if place.name == "data" and place.parent.parent == data_dir / "sandboxes":
            found.add(place.parent.name)
    return {name for name in found if _NAME.fullmatch(name)}


def record_folders(system: Path, folders: list[Path]) -> None:
    """Remember where our cgroups are: a server that starts in another cgroup would look elsewhere."""
    known = [folder for folder in recorded_folders(system) if folder.is_dir()]
    lines = "".join(f"{folder}\n" for folder in dict.fromkeys([*known, *folders]))
    fd, temporary = tempfile.mkstemp(dir=system)
    with os.fdopen(fd, "w") as file:
        file.write(lines)
    os.rename(temporary, system / _RECORD)


def recorded_folders(system: Path) -> list[Path]:
    try:
        return [Path(line) for line in (system / _RECORD).read_text().splitlines() if line]
    except FileNotFoundError:
        return []


def remove_empty(folders: list[Path]) -> None:
    """Remove the folders of sandboxes' cgroups, and the one that servers share, where they are empty."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()
            folder.parent.rmdir()
