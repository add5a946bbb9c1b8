"""Starts bwrap and waits until the guest runs in the finished sandbox, or says why it does not."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddock import errors
from paddock.runtimes import processes
from paddock.runtimes.base import LINK_FD
from paddock.runtimes.bwrap_args import FIRST_FILTER_FD, INFO_FD, READY_FD
from paddock.runtimes.processes import Process

SECONDS = 60.0
_COMPLAINT = 4096
_FULL = ("Resource temporarily unavailable", "No space left on device", "Cannot allocate memory")


@dataclass(slots=True)
class Started:
    bwrap: Process
    bwrap_fd: int
    guest: Process
    guest_fd: int
    link: socket.socket

    def close(self) -> None:
        os.close(self.bwrap_fd)
        os.close(self.guest_fd)
        self.link.close()


@dataclass(slots=True)
class _Ends:
    """The host's ends of what the new process gets."""

    link: socket.socket
    info: int
    complaint: int


async def start(launch: str, argv: Sequence[str], filters: Sequence[Path]) -> Started:
    """When it fails or is cancelled nothing runs any more."""
    with contextlib.ExitStack() as stack:
        try:
            ends, child = _open_ends(stack, filters)
            pid = processes.spawn(launch, argv, child)
        except OSError as problem:
            raise full(problem) from problem
        bwrap_fd = os.pidfd_open(pid)
        keep = False
        try:
            bwrap = Process(pid, _start_time(pid))
            # Ours alone from here on, or the end of the pipe would never come.
            ends_of_child = stack.pop_all()
            ends_of_child.close()
            started = await _wait_for_guest(bwrap, bwrap_fd, ends)
            keep = True
            return started
        finally:
            os.close(ends.info)
            os.close(ends.complaint)
            if not keep:
                await _undo(pid, bwrap_fd)
                os.close(bwrap_fd)
                ends.link.close()


def _start_time(pid: int) -> int:
    # It is our child and not reaped, so it is there, if only as a zombie.
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def _open_ends(stack: contextlib.ExitStack, filters: Sequence[Path]) -> tuple[_Ends, dict[int, int]]:
    """Our ends, and the child's by number, which the stack closes."""
    ours = contextlib.ExitStack()
    with ours:
        link, guest_link = socket.socketpair()
        ours.callback(link.close)
        stack.callback(guest_link.close)
        info, info_child = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        ours.callback(os.close, info)
        stack.callback(os.close, info_child)
        os.set_blocking(info_child, True)
        complaint = _make_complaint()
        ours.callback(os.close, complaint)
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        stack.callback(os.close, null)
        child = {0: null, 1: null, 2: complaint, LINK_FD: guest_link.fileno(), INFO_FD: info_child}
        child[READY_FD] = info_child
        for number, path in enumerate(filters):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            child[FIRST_FILTER_FD + number] = fd
        ours.pop_all()
        return _Ends(link, info, complaint), child


def _make_complaint() -> int:
    """Where bwrap says what went wrong. It stays open in the sandbox, so it has to be small for ever."""
    fd = os.memfd_create("paddock-complaint", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(fd, _COMPLAINT)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return fd


async def _wait_for_guest(bwrap: Process, bwrap_fd: int, ends: _Ends) -> Started:
    try:
        async with asyncio.timeout(SECONDS):
            info = await _read_to_end(ends.info)
    except TimeoutError:
        raise errors.Unavailable(
            f"the sandbox did not start within {SECONDS:.0f} seconds",
            reason="sandbox_start_timeout",
            hint="the host may be overloaded; try again",
        ) from None
    guest = _find_guest(info)
    guest_fd = processes.open_process(guest) if guest else None
    if guest is None or guest_fd is None:
        async with asyncio.timeout(SECONDS):
            await processes.wait_readable(bwrap_fd)
        raise _start_failed(bwrap.pid, ends.complaint)
    return Started(bwrap, bwrap_fd, guest, guest_fd, ends.link)


async def _read_to_end(fd: int) -> bytes:
    """bwrap writes who the guest is. The end comes when the guest, the last to hold it, has closed it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()
    received = bytearray()

    def readable() -> None:
        for chunk in _chunks(fd):
            if chunk:
                received.extend(chunk)
            elif not done.done():
                loop.remove_reader(fd)
                done.set_result(bytes(received))

    loop.add_reader(fd, readable)
    try:
        return await done
    finally:
        loop.remove_reader(fd)


def _chunks(fd: int) -> Iterator[bytes]:
    with contextlib.suppress(BlockingIOError):
        while True:
            chunk = os.read(fd, 4096)
            yield chunk
            if not chunk:
                return


def _find_guest(info: bytes) -> Process | None:
    """The guest, when it has really begun: not a bwrap that gave up and is on its way out."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        pid = int(json.loads(info)["child-pid"])
        try:
            os.readlink(f"/proc/{pid}/exe")
        except (FileNotFoundError, ProcessLookupError):
            return None
        except PermissionError:
            # A guest hides itself from its own user, and so from a server without root.
            pass
        return processes.identify(pid)
    return None


def _start_failed(pid: int, complaint: int) -> errors.PaddockError:
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    text = os.pread(complaint, _COMPLAINT, 0).rstrip(b"\0").decode(errors="replace").strip()
    if not text:
        text = (
            f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with status {code}"
        )
    if any(reason in text for reason in _FULL):
        return errors.Exhausted(
            f"the host has no room for another sandbox: {text}",
            reason="host_full",
            hint="end some sandboxes, or raise the host's limits on processes and namespaces",
        )
    return errors.Unavailable(
        f"the sandbox could not be started: {text}",
        reason="sandbox_start_failed",
        hint="run `paddock doctor` to see what this host cannot do",
    )


async def _undo(pid: int, bwrap_fd: int) -> None:
    """Kill what has been started so far: bwrap's children first, since they would outlive it."""
    for child in processes.children(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
    processes.kill(bwrap_fd)
    while not processes.has_ended(bwrap_fd):
        with contextlib.suppress(asyncio.CancelledError):
            await processes.wait_readable(bwrap_fd)
    processes.reap(pid)


def full(problem: OSError) -> errors.PaddockError:
    """The error of a host that has run out of something."""
    hints = {
        errno.ENOSPC: "free some disk space",
        errno.EDQUOT: "free some disk space",
        errno.EMFILE: "raise the server's limit on open files (LimitNOFILE, ulimit -n)",
        errno.ENFILE: "raise the host's limit on open files (fs.file-max)",
        errno.EAGAIN: "end some sandboxes, or raise the host's limits on processes",
        errno.ENOMEM: "end some sandboxes, or add memory",
    }
    if problem.errno in hints:
        return errors.Exhausted(
            f"the host has no room for another sandbox: {problem}",
            reason="host_full",
            hint=hints[problem.errno],
        )
    return errors.Unavailable(
        f"the sandbox could not be made: {problem}",
        reason="sandbox_create_failed",
        hint="run `paddock doctor`",
    )
