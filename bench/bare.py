"""Bare `bwrap` with the mounts and flags of a real sandbox, `true` in the guest's place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paddock.runtimes.base import Limits
from paddock.runtimes.bwrap_args import FIRST_FILTER_FD, GUEST, INFO_FD, Places, sandbox_args
from paddock.runtimes.bwrap_host import prepare_host
from paddock.runtimes.processes import spawn


@dataclass(frozen=True, slots=True)
class BareBwrap:
    program: str
    argv: tuple[str, ...]
    filters: tuple[Path, ...]

    def run(self) -> None:
        """From the start of bwrap to its end. The folders are there already."""
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        filters = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in self.filters]
        try:
            descriptors = {0: null, 1: null, 2: 2, INFO_FD: null}
            descriptors |= {FIRST_FILTER_FD + number: fd for number, fd in enumerate(filters)}
            pid = spawn(self.program, self.argv, descriptors)
        finally:
            for fd in (null, *filters):
                os.close(fd)
        _, status = os.waitpid(pid, 0)
        if status != 0:
            raise RuntimeError(f"bwrap ended with {os.waitstatus_to_exitcode(status)}")


def prepare_bare(folder: Path, command: Sequence[str]) -> BareBwrap:
    host = prepare_host(folder / "bare")
    names = ("workspace", "home", "tmp", "outputs", "run")
    places = Places(*(folder / "bare" / name for name in names))
    for name in names:
        (folder / "bare" / name).mkdir(exist_ok=True)
    own = sandbox_args(places, "paddock", Limits().memory)
    if own[-1] != GUEST:
        raise RuntimeError("the sandbox's arguments no longer end with the guest")
    return BareBwrap(host.bwrap, (host.bwrap, *host.args, *own[:-1], *command), host.filters)
