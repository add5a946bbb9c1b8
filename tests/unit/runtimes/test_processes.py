from __future__ import annotations

import asyncio
import os
import signal

import pytest

from paddock.runtimes import processes
from paddock.runtimes.processes import Process


def spawn_sleep() -> int:
    with open(os.devnull, "r+b") as null:
        return processes.spawn("/bin/sleep", ["sleep", "60"], dict.fromkeys((0, 1, 2), null.fileno()))


@pytest.fixture
def sleeper():  # type: ignore[no-untyped-def]
    pid = spawn_sleep()
    yield pid
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def test_a_process_is_known_by_pid_and_start(sleeper: int) -> None:
    process = processes.identify(sleeper)
    assert process is not None
    assert process.pid == sleeper
    fd = processes.open_process(process)
    assert fd is not None
    assert not processes.has_ended(fd)
    os.close(fd)


def test_another_process_with_the_same_pid_is_not_it(sleeper: int) -> None:
    process = processes.identify(sleeper)
    assert process is not None
    assert processes.open_process(Process(sleeper, process.start + 1)) is None


async def test_the_end_of_a_process_wakes_everyone_who_waits(sleeper: int) -> None:
    process = processes.identify(sleeper)
    assert process is not None
    fd = processes.open_process(process)
    assert fd is not None
    waiting = [asyncio.create_task(processes.wait_readable(fd)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    processes.kill(fd)
    async with asyncio.timeout(20):
        await asyncio.gather(*waiting)
    assert processes.has_ended(fd)
    assert processes.identify(sleeper) is None, "a zombie does not run"
    processes.reap(sleeper)
    processes.reap(sleeper)
    processes.kill(fd)
    os.close(fd)


async def test_a_waiter_may_be_cancelled(sleeper: int) -> None:
    fd = os.pidfd_open(sleeper)
    before = set(os.listdir("/proc/self/fd"))
    task = asyncio.create_task(processes.wait_readable(fd))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert set(os.listdir("/proc/self/fd")) == before
    os.close(fd)


def test_a_spawned_program_gets_the_named_descriptors_and_no_environment() -> None:
    reader, writer = os.pipe()
    # Targets that are each other's sources: copies in the wrong order would mix them up.
    low, high = os.dup(writer), os.open(os.devnull, os.O_RDWR)
    pid = processes.spawn("/bin/sh", ["sh", "-c", "env; echo end >&9"], {0: high, 1: low, 2: high, 9: low})
    for fd in (writer, low, high):
        os.close(fd)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    names = {line.partition("=")[0] for line in text.splitlines()}
    assert "end" in names
    assert names <= {"PWD", "SHLVL", "_", "OLDPWD", "end"}


def test_children_are_found(sleeper: int) -> None:
    assert sleeper in [child.pid for child in processes.children(os.getpid())]
    assert processes.children(2**22 - 1) == []
