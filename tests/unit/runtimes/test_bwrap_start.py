from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from paddock import errors
from paddock.guest.build import launch_binary
from paddock.runtimes import bwrap_start
from paddock.runtimes.bwrap_start import full, start
from tests.unit.runtimes.stub import open_descriptors

pytestmark = pytest.mark.needs("cc")


def launch(script: str) -> list[str]:
    """A shell script in bwrap's place: descriptor 4 takes the information, and 5 is the guest's to close."""
    return ["paddock-launch", "-k", "5", "--", "/bin/sh", "sh", "-c", script]


async def test_a_failure_carries_what_bwrap_said() -> None:
    before = open_descriptors()
    with pytest.raises(errors.Unavailable, match="bwrap: no can do") as caught:
        await start(str(launch_binary()), launch("echo bwrap: no can do >&2; exit 1"), [])
    assert caught.value.reason == "sandbox_start_failed"
    assert open_descriptors() == before


async def test_a_host_that_is_full_is_told_apart() -> None:
    with pytest.raises(errors.Exhausted) as caught:
        await start(
            str(launch_binary()), launch("echo fork: Resource temporarily unavailable >&2; exit 1"), []
        )
    assert caught.value.reason == "host_full"


async def test_silence_is_explained_by_the_exit() -> None:
    with pytest.raises(errors.Unavailable, match="status 7"):
        await start(str(launch_binary()), launch("exit 7"), [])
    with pytest.raises(errors.Unavailable, match="SIGKILL"):
        await start(str(launch_binary()), launch("kill -9 $$"), [])


async def test_a_guest_that_died_at_once_is_a_failure() -> None:
    script = 'true 4>&- 5>&- & echo "{\\"child-pid\\": $!}" >&4; wait $!; exec 4>&- 5>&-; exit 3'
    with pytest.raises(errors.Unavailable, match="status 3"):
        await start(str(launch_binary()), launch(script), [])


async def test_a_start_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap_start, "SECONDS", 0.2)
    before = open_descriptors()
    with pytest.raises(errors.Unavailable) as caught:
        await start(str(launch_binary()), launch("sleep 1000 & wait"), [])
    assert caught.value.reason == "sandbox_start_timeout"
    assert open_descriptors() == before


async def test_a_cancelled_start_is_ended() -> None:
    before = open_descriptors()
    task = asyncio.create_task(start(str(launch_binary()), launch("exec sleep 1000"), []))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert open_descriptors() == before


async def test_a_complaint_cannot_grow(tmp_path: Path) -> None:
    fd = bwrap_start._make_complaint()
    try:
        written = os.write(fd, b"x" * 10_000)
        assert written <= 4096
        with pytest.raises(PermissionError):
            os.write(fd, b"more")
    finally:
        os.close(fd)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.EAGAIN])
def test_running_out_is_its_own_error(number: int) -> None:
    problem = full(OSError(number, os.strerror(number)))
    assert isinstance(problem, errors.Exhausted)
    assert problem.hint


def test_other_failures_are_not_called_full() -> None:
    problem = full(PermissionError(errno.EACCES, "no"))
    assert isinstance(problem, errors.Unavailable)
    assert not isinstance(problem, errors.Exhausted)
