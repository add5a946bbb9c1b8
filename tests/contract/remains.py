"""What a deleted sandbox must not leave on the host."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Remains:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._gone: dict[str, list[Path]] = {}
        """Sandboxes that were seen, with their cgroups."""

    def expect_gone(self, sandbox_id: str, handle: dict[str, Any]) -> None:
        groups = [Path(text) for text in _texts(handle) if text.startswith("/sys/fs/cgroup/")]
        self._gone[sandbox_id] = groups

    def found(self, known: set[str]) -> list[str]:
        """Everything that belongs to no sandbox of `known`."""
        gone = {key: groups for key, groups in self._gone.items() if key not in known}
        left = [f"cgroup {group}" for groups in gone.values() for group in groups if group.exists()]
        left += [f"process {pid}: {command}" for pid, command in _processes(set(gone))]
        left += [f"mount {line}" for line in _mounts(self._folder, known)]
        for parent in (self._folder / "sandboxes", self._folder / "logs"):
            left += [f"folder {entry}" for entry in parent.iterdir() if entry.name not in known]
        return left


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)


def _processes(sandbox_ids: set[str]) -> Iterator[tuple[int, str]]:
    """Execs carry their sandbox's id in their environment, launchers in their title."""
    marks = [sandbox_id.encode() for sandbox_id in sandbox_ids]
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{name}/cmdline").read_bytes()
            text = command
            with contextlib.suppress(PermissionError):
                text += Path(f"/proc/{name}/environ").read_bytes()
            if any(mark in text for mark in marks):
                yield int(name), command.replace(b"\0", b" ").decode(errors="replace")


def _mounts(folder: Path, known: set[str]) -> Iterator[str]:
    for line in Path("/proc/self/mounts").read_text(errors="replace").splitlines():
        if f"{folder}/sandboxes/" in line and not any(sandbox_id in line for sandbox_id in known):
            yield line
