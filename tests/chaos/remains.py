"""What a data folder's sandboxes have on this machine: processes, mounts, cgroups, folders."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from paddock.runtimes.bwrap_remains import recorded_folders, titled_processes
from paddock.runtimes.cgroups import instance_key
from paddock.runtimes.processes import children

_LISTEN = "0A"


def remains_of(data: Path, known: set[str], server: int | None) -> list[str]:
    """Whatever belongs to no sandbox of `known`, nor is the server itself."""
    left = []
    for pid, (text, command) in _processes(data).items():
        if pid != server and not any(sandbox in text for sandbox in known):
            left.append(f"process {pid}: {command}")
    left += [f"mount {line}" for line in _mounts(data / "sandboxes") if not any(one in line for one in known)]
    places = [data / "sandboxes", data / "logs", *recorded_folders(data / "system")]
    for place in places:
        with contextlib.suppress(OSError):
            left += [
                f"folder {entry}" for entry in place.iterdir() if entry.is_dir() and entry.name not in known
            ]
    return left


def processes_of(data: Path) -> dict[int, str]:
    return {pid: command for pid, (_, command) in _processes(data).items()}


def _processes(data: Path) -> dict[int, tuple[str, str]]:
    """(everything that tells whose it is, command line): by title, cgroup, mounts or environment."""
    marks = (f"paddock:{instance_key(data)}:", f"paddock/{instance_key(data)}/", f"{data}/", f"={data}\0")
    found = {}
    ours = os.readlink("/proc/self/ns/mnt")
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X"):
                continue
            files = ["cmdline", "cgroup", "environ"]
            if os.readlink(f"/proc/{name}/ns/mnt") != ours:
                # What we see mounted ourselves, everybody inherits.
                files.append("mountinfo")
            text = "".join(_read(f"/proc/{name}/{file}") for file in files)
            if any(mark in text for mark in marks):
                found[int(name)] = (text, _read(f"/proc/{name}/cmdline").replace("\0", " ").strip())
    return found


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""


def _mounts(folder: Path) -> list[str]:
    return [line for line in _read("/proc/self/mounts").splitlines() if f"{folder}/" in line]


def unmount_below(folder: Path) -> None:
    for line in reversed(_mounts(folder)):
        subprocess.run(["umount", "-l", line.split()[1]], check=False)


def parts_of(data: Path, sandbox: str) -> tuple[int, int]:
    """The host's numbers of a sandbox's bwrap and of its guest."""
    bwrap = [one for name, one in titled_processes(instance_key(data)) if name == sandbox]
    guests = [child for one in bwrap for child in children(one.pid)]
    assert len(bwrap) == len(guests) == 1, (bwrap, guests)
    return bwrap[0].pid, guests[0].pid


def below(pid: int) -> dict[int, str]:
    """Every process that a process has started, with its name."""
    found: dict[int, str] = {}
    for child in children(pid):
        found[child.pid] = _read(f"/proc/{child.pid}/comm").strip()
        found |= below(child.pid)
    return found


def listening_port(pid: int) -> int | None:
    """Where a process listens on 127.0.0.1."""
    inodes = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(f"/proc/{pid}/fd/{name}").removeprefix("socket:[").removesuffix("]"))
    for line in _read("/proc/net/tcp").splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTEN and fields[9] in inodes:
            return int(fields[1].partition(":")[2], 16)
    return None
