"""Fails a test that leaves processes or mounts behind.

A process counts as the test's own when it descends from the test process, or when its command line or its
mounts name this run's temporary folder: a sandbox that outlives its server belongs to init and descends from
nobody. `@pytest.mark.leaks_ok` exempts a test, for example one on a server that a wider fixture owns.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

Found = TypeVar("Found", dict[int, str], set[str])

GRACE_SECONDS = 10.0
# Python keeps one of these per process, on purpose, until it exits.
LONG_LIVED = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver")


@pytest.fixture(autouse=True)
def _no_leaks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if request.node.get_closest_marker("leaks_ok"):
        yield
        return
    folder = f"{tmp_path_factory.getbasetemp()}/"
    pids_before, mounts_before = _pids(), _mounts(folder)
    yield
    processes = _settle(lambda: _leaked_processes(folder, pids_before))
    mounts = _settle(lambda: _mounts(folder) - mounts_before)
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    problems = [f"process {pid}: {command}" for pid, command in processes.items()]
    problems += [f"mount {mount}" for mount in sorted(mounts)]
    if problems:
        pytest.fail("left behind by this test:\n  " + "\n  ".join(problems), pytrace=False)


def _settle(look: Callable[[], Found]) -> Found:
    deadline = time.monotonic() + GRACE_SECONDS
    while (found := look()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _pids() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def _leaked_processes(folder: str, before: set[int]) -> dict[int, str]:
    leaked = {}
    for pid in _pids() - before:
        with contextlib.suppress(OSError):
            state, _ = _state_and_parent(pid)
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if state in "ZX" or any(known in command for known in LONG_LIVED):
                continue
            if _descends_from_us(pid) or folder.encode() in command or _mounts_name(pid, folder):
                leaked[pid] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return leaked


def _state_and_parent(pid: int) -> tuple[str, int]:
    # The program's name is in brackets and may hold anything, so read from the last bracket on.
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return fields[0], int(fields[1])


def _descends_from_us(pid: int) -> bool:
    us = os.getpid()
    while pid > 1:
        if pid == us:
            return True
        _, pid = _state_and_parent(pid)
    return False


def _mounts_name(pid: int, folder: str) -> bool:
    # Mounts that we see ourselves are inherited by every process and prove nothing.
    try:
        if os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            return False
        return folder in Path(f"/proc/{pid}/mountinfo").read_text(errors="replace")
    except OSError:
        return False


def _mounts(folder: str) -> set[str]:
    lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    return {line for line in lines if folder in line}
