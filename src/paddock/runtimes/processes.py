"""Processes on the host that may outlive us: known by pid and start time, watched by descriptor."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import os
import select
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Sources are moved at least this high first, so that no target number overwrites a source still to be copied.
_ABOVE_TARGETS = 64


@dataclass(frozen=True, slots=True)
class Process:
    """A process for all time of one boot: its pid may be used again, its start time then differs."""

    pid: int
    start: int

    def as_list(self) -> list[int]:
        return [self.pid, self.start]


@functools.cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> Process | None:
    """None when no such process runs. A zombie does not run."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The program's name is in brackets and may hold anything, so read from the last bracket on.
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else Process(pid, int(fields[19]))


def children(pid: int) -> list[Process]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            pids = file.read().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [child for number in pids if (child := identify(int(number))) is not None]


def open_process(process: Process) -> int | None:
    """A pidfd for exactly this process; None when it has ended."""
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    # The descriptor pins the pid from here on: what is true now stays true of the descriptor.
    if identify(process.pid) == process:
        return fd
    os.close(fd)
    return None


def has_ended(pidfd: int) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


async def wait_readable(fd: int) -> None:
    """Return when the descriptor has something: for a pidfd, when the process has ended."""
    loop = asyncio.get_running_loop()
    # A loop watches a descriptor once: each waiter brings its own.
    own = os.dup(fd)
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(own, _settle, ready)
    try:
        await ready
    finally:
        loop.remove_reader(own)
        os.close(own)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def kill(pidfd: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def reap(pid: int) -> None:
    """Take the exit status of a child, so that no zombie stays. Others' children are left alone."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def spawn(program: str, argv: Sequence[str], descriptors: Mapping[int, int]) -> int:
    """Start a program with these descriptors (number in the child: ours) and no environment.

    posix_spawn does not copy the server's address space, so its cost does not grow with the server.
    """
    copies: dict[int, int] = {}
    try:
        for target, source in descriptors.items():
            copies[target] = _duplicate_high(source)
        actions = [(os.POSIX_SPAWN_DUP2, copy, target) for target, copy in copies.items()]
        return os.posix_spawn(program, list(argv), {}, file_actions=actions)
    finally:
        for copy in copies.values():
            os.close(copy)


def _duplicate_high(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE_TARGETS)
