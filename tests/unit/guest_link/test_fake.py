from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from paddock import errors
from paddock.guest.link import Guest
from paddock.guest.process import collect
from paddock.runtimes.base import Enforcement, Limits, Pausable, Runtime, Spec
from paddock.runtimes.fake import FakeRuntime, Faults
from tests.unit.guest_link.peer import PATIENCE, SECRET, Recorder, descriptors, until
from tests.unit.guest_link.real import Sandbox, sandbox, sh

pytestmark = pytest.mark.needs("cc")


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with sandbox(tmp_path) as made:
        yield made


@pytest.fixture
def spec(tmp_path: Path) -> Spec:
    folder = tmp_path / "sandboxes" / "sb-7"
    folder.mkdir(parents=True)
    return Spec("sb-7", folder, 7)


async def _run(made: Sandbox, script: str) -> bytes:
    return (await collect(made.guest, sh(script), limit=10_000, timeout=PATIENCE)).stdout


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def _started(made: Sandbox, script: str) -> int:
    """Start a script that prints a pid of its own choice; return that pid."""
    sink = Recorder()
    made.guest.start(sh(script), sink)
    await until(lambda: sink.stdout.endswith(b"\n"))
    return int(sink.stdout)


def _ended(pid: int) -> bool:
    try:
        return _state(pid) in "ZX"
    except FileNotFoundError:
        return True


async def test_it_is_a_runtime() -> None:
    runtime = FakeRuntime()
    assert isinstance(runtime, Runtime)
    assert isinstance(runtime, Pausable)
    first, *_ = await runtime.probe()
    assert (first.name, first.works) == ("fake", True)


async def test_what_it_promises_of_limits(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    spec = Spec("sb-1", tmp_path, 1, limits=Limits(memory=None, open_files=64))
    instance = await runtime.create(spec)
    assert instance.enforcement == {
        "cpus": Enforcement.NONE,
        "processes": Enforcement.NONE,
        "disk": Enforcement.NONE,
        "open_files": Enforcement.FULL,
    }
    assert instance.link is not None
    guest = await Guest.boot(instance.link, SECRET, instance.dial_folder, timeout=PATIENCE)
    done = await collect(guest, sh("ulimit -n"), limit=100, timeout=PATIENCE)
    assert done.stdout == b"64\n"
    guest.close()
    await runtime.destroy(spec, instance.handle)


async def test_the_folders_are_there_and_private(made: Sandbox) -> None:
    instance = made.instance
    script = (
        f"cd {instance.workspace} && pwd && touch a && cd {instance.home} && cd {instance.outputs} && echo ok"
    )
    assert (await _run(made, script)).endswith(b"\nok\n")
    for folder in (instance.workspace, instance.home, instance.outputs):
        assert Path(folder).is_relative_to(made.spec.folder)


async def test_a_tenants_storage_outlives_the_sandbox(spec: Spec, tmp_path: Path) -> None:
    storage = tmp_path / "tenant"
    spec = replace(spec, storage=storage)
    runtime = FakeRuntime()
    instance = await runtime.create(spec)
    assert Path(instance.workspace) == storage / "workspace"
    Path(instance.outputs, "kept").write_text("yes")
    assert instance.link is not None
    instance.link.close()
    await runtime.destroy(spec, instance.handle)
    await runtime.destroy(spec, instance.handle)
    assert not spec.folder.exists()
    assert (storage / "outputs" / "kept").read_text() == "yes"


async def test_pause_and_resume(made: Sandbox) -> None:
    pid = await _started(made, "sleep 300 & echo $!; wait")
    await made.runtime.pause(made.instance)
    assert _state(pid) == _state(made.instance.pid) == "T"
    with pytest.raises(errors.Timeout):
        await made.guest.ping(0.1)
    await made.runtime.resume(made.instance)
    assert await made.guest.ping(PATIENCE) > 0
    await until(lambda: _state(pid) == "S")


@pytest.mark.parametrize("paused", [False, True])
async def test_kill_reaches_everything(made: Sandbox, paused: bool) -> None:
    daemon = await _started(made, "setsid sh -c 'sleep 300 & echo $!'; sleep 300")
    if paused:
        await made.runtime.pause(made.instance)
    await made.runtime.kill(made.instance)
    assert _ended(daemon)
    assert made.runtime.exited(made.instance)
    assert not Path(f"/proc/{made.instance.pid}").exists()
    await made.runtime.kill(made.instance)
    async with asyncio.timeout(PATIENCE):
        await made.runtime.wait(made.instance)


async def test_kill_reaches_what_a_killed_guest_left(made: Sandbox) -> None:
    pid = await _started(made, "sleep 300 & echo $!; wait")
    os.kill(made.instance.pid, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE):
        await made.runtime.wait(made.instance)
    assert made.runtime.exited(made.instance)
    await made.runtime.kill(made.instance)
    assert _ended(pid)


async def test_it_is_found_again_after_a_restart(made: Sandbox) -> None:
    another = FakeRuntime(made.spec.folder.parent)
    found = await another.recover(made.spec, made.instance.handle)
    assert found is not None
    assert found.link is None
    assert replace(found, link=made.instance.link) == made.instance
    await made.redial()
    assert await _run(made, "echo still here") == b"still here\n"
    await another.kill(found)
    assert await another.recover(made.spec, made.instance.handle) is None
    assert await another.recover(made.spec, made.instance.handle | {"start": 1}) is None


async def test_orphans_are_only_our_own(spec: Spec) -> None:
    sandboxes = spec.folder.parent
    (sandboxes / "somebody-elses").mkdir()
    (sandboxes / "a-file").write_text("")
    runtime = FakeRuntime(sandboxes)
    instance = await runtime.create(spec)
    assert await runtime.orphans(set()) == ["sb-7"]
    assert await runtime.orphans({"sb-7"}) == []
    assert instance.link is not None
    instance.link.close()
    await FakeRuntime(sandboxes).destroy(spec, None)
    assert _ended(instance.pid)
    assert await runtime.orphans(set()) == []
    assert await FakeRuntime(sandboxes / "not-there").orphans(set()) == []


async def test_stats(made: Sandbox) -> None:
    await _started(made, "sleep 300 & echo $!; wait")
    stats = await made.runtime.stats(made.instance)
    # The guest, the shepherd, the shell and sleep.
    assert stats.processes == 4
    assert stats.memory is not None
    assert stats.memory > 0
    assert stats.cpu_seconds is not None


async def test_told_to_fail_it_fails_once_and_leaves_nothing(spec: Spec) -> None:
    before = descriptors()
    runtime = FakeRuntime(faults=Faults(fail_create=1))
    with pytest.raises(errors.Unavailable) as caught:
        await runtime.create(spec)
    assert caught.value.reason == "fault"
    assert list(spec.folder.iterdir()) == []
    assert descriptors() == before
    instance = await runtime.create(spec)
    assert instance.link is not None
    instance.link.close()
    await runtime.destroy(spec, instance.handle)


async def test_a_create_that_is_cancelled_leaves_nothing(spec: Spec) -> None:
    before = descriptors()
    runtime = FakeRuntime(faults=Faults(hang_create=1))
    creating = asyncio.create_task(runtime.create(spec))
    await until((spec.folder / "fake.json").exists)
    assert not creating.done()
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert list(spec.folder.iterdir()) == []
    assert descriptors() == before


async def test_a_guest_that_dies_after_create(spec: Spec) -> None:
    runtime = FakeRuntime(faults=Faults(die_after_create=1))
    instance = await runtime.create(spec)
    assert runtime.exited(instance)
    assert instance.link is not None
    with pytest.raises(errors.Unavailable):
        await Guest.boot(instance.link, SECRET, instance.dial_folder, timeout=PATIENCE)
    await runtime.destroy(spec, instance.handle)


async def test_a_long_path_is_no_obstacle_to_dialling(tmp_path: Path) -> None:
    deep = tmp_path / ("long" * 25)
    deep.mkdir()
    async with sandbox(deep) as made:
        assert (await made.redial()).boot_id
        assert await _run(made, "echo back") == b"back\n"
