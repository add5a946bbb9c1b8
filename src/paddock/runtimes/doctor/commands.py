"""Runs a program for a probe, with a bound on time and output."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

SECONDS = 20.0
_PATH_OF_ADMINISTRATORS = "/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class Done:
    code: int | None
    """None: it did not end in time."""
    output: str
    problem: str

    @property
    def first_line(self) -> str:
        return next(iter(self.output.strip().splitlines()), "")

    @property
    def complaint(self) -> str:
        if self.code is None:
            return "it did not end in time"
        return next(reversed(self.problem.strip().splitlines()), f"it ended with status {self.code}")


def find_program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=_PATH_OF_ADMINISTRATORS)


async def run(*command: str, seconds: float = SECONDS, user: int | None = None) -> Done:
    """`user` (with the group of the same number) may be given by root only."""
    return await asyncio.to_thread(_run, command, seconds, user)


def _run(command: tuple[str, ...], seconds: float, user: int | None) -> Done:
    # In a thread of its own: not every event loop can start a process as another user.
    identity: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        **identity,
    )
    try:
        output, problem = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return Done(None, "", "")
    finally:
        if process.returncode is None:
            _end(process)
    return Done(process.returncode, output.decode(errors="replace"), problem.decode(errors="replace"))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    # A process that hangs inside the kernel outlives its own killing; a probe must not wait for it.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(2)
