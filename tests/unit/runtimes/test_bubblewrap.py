"""Real sandboxes, made as root, looked at from inside through a stub guest."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from paddock import errors
from paddock.runtimes import processes
from paddock.runtimes.base import UID_BASE, Enforcement, Limits, Spec
from paddock.runtimes.bubblewrap import BubblewrapRuntime
from paddock.runtimes.cgroups import Group, remove_folder
from paddock.runtimes.waiting import until
from tests.unit.runtimes.conftest import Maker
from tests.unit.runtimes.stub import inside, open_descriptors

pytestmark = pytest.mark.needs("root", "bwrap", "cc")
SECONDS = 30.0
UNLIMITED = Limits(memory=None, cpus=None, processes=None, disk=None)


async def test_a_sandbox_is_made_and_removed_without_a_trace(maker: Maker) -> None:
    before = open_descriptors()
    spec = maker.spec()
    instance = await maker.runtime.create(spec)
    assert instance.pid > 0
    assert not maker.runtime.exited(instance)
    assert instance.peer_uid == UID_BASE + spec.slot
    assert json.loads(json.dumps(instance.handle)) == instance.handle
    assert (await inside(instance, "echo $$-from-inside; id -u; pwd")).output.splitlines()[1:] == [
        "1000",
        "/workspace",
    ]
    group = Group.from_dict(instance.handle["cgroup"])
    bwrap = instance.handle["bwrap"][0]
    assert instance.link is not None
    instance.link.close()
    await maker.runtime.destroy(spec, instance.handle)
    assert not spec.folder.exists()
    assert not any(Path(folder).exists() for folder in group.folders.values())
    assert not Path(f"/proc/{instance.pid}").exists()
    assert not Path(f"/proc/{bwrap}").exists(), "not even as a zombie"
    assert maker.runtime.exited(instance)
    assert open_descriptors() == before
    await maker.runtime.destroy(spec, instance.handle)


async def test_nothing_of_the_host_comes_in(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "leaked")
    fd = os.open("/", os.O_RDONLY)
    os.set_inheritable(fd, True)
    try:
        instance = await maker.create(maker.spec(hostname="meadow"))
    finally:
        os.close(fd)
    assert "HOST_SECRET" not in (await inside(instance, "cat /proc/1/environ; env")).output
    assert (await inside(instance, "ls /proc/self/fd | wc -l")).output.split() == ["4"], (
        "0, 1, 2 and ls's own"
    )
    shown = set((await inside(instance, "ls /")).output.split())
    assert shown <= {"bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "mnt", "proc", "run", "sbin", "tmp", "usr", "var", "workspace"}  # noqa: E501  # fmt: skip
    assert (await inside(instance, "ls /home")).output.split() == ["paddock"]
    assert (await inside(instance, "ls /run /var /mnt")).output.split() == ["/mnt:", "user-data", "/run:", "paddock", "/var:", "tmp"]  # noqa: E501  # fmt: skip
    assert (await inside(instance, "cat /etc/shadow /etc/gitconfig")).status != 0
    assert (await inside(instance, "hostname")).output.strip() == "meadow"
    assert (await inside(instance, "cat /proc/net/dev | tail -n +3 | cut -d: -f1")).output.split() == ["lo"]


async def test_there_are_no_rights_inside(maker: Maker) -> None:
    instance = await maker.create(maker.spec())
    status = (await inside(instance, "cat /proc/self/status")).output
    fields = {name: value.split() for name, _, value in (line.partition(":") for line in status.splitlines())}
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(fields[name][0], 16) == 0, name
    assert fields["NoNewPrivs"] == ["1"]
    assert fields["Seccomp"] == ["2"]
    uid_map = (await inside(instance, "cat /proc/self/uid_map")).output.split()
    assert uid_map[0] == "1000"
    assert uid_map[2] == "1"
    for attempt in ("unshare -U true", "unshare -m true", "mount -t tmpfs x /tmp", "chroot / true"):
        assert (await inside(instance, attempt)).status != 0, attempt


@pytest.mark.parametrize(
    "place", ["/", "/usr", "/etc", "/dev", "/run/paddock", "/run", "/var", "/proc/sys/kernel"]
)
async def test_the_system_is_read_only(maker: Maker, place: str) -> None:
    instance = await maker.create(maker.spec())
    assert (await inside(instance, f"touch {place}/new")).status != 0


async def test_its_own_folders_are_writable_and_private(maker: Maker) -> None:
    one = await maker.create(maker.spec("one", 1))
    two = await maker.create(maker.spec("two", 2))
    for place in ("/workspace", "/home/paddock", "/tmp", "/var/tmp", "/mnt/user-data/outputs", "/dev/shm"):
        assert (await inside(one, f"echo x > {place}/mine")).status == 0, place
        assert (await inside(two, f"cat {place}/mine")).status != 0, place
    assert (await inside(one, "python3 -c 'import ssl, socket; print(6 * 7)'")).output.strip() == "42"


async def test_a_tenants_storage_is_there_again(maker: Maker) -> None:
    storage = maker.data_dir / "tenant"
    first = maker.spec("one", 1, storage=storage)
    instance = await maker.create(first)
    await inside(
        instance, "echo kept > /workspace/file; echo kept > /mnt/user-data/outputs/file; touch ~/gone"
    )
    await maker.runtime.destroy(first, instance.handle)
    again = await maker.create(maker.spec("two", 1, storage=storage))
    assert (
        await inside(again, "cat /workspace/file /mnt/user-data/outputs/file; ls ~")
    ).output == "kept\nkept\n"


async def test_kill_ends_everything_and_keeps_the_files(maker: Maker) -> None:
    spec = maker.spec()
    instance = await maker.create(spec)
    await inside(
        instance, "echo kept > /workspace/file; setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo started"
    )
    assert len(Group.from_dict(instance.handle["cgroup"]).pids()) == 3
    waiting = asyncio.create_task(maker.runtime.wait(instance))
    await maker.runtime.kill(instance)
    async with asyncio.timeout(SECONDS):
        await waiting
    assert maker.runtime.exited(instance)
    assert Group.from_dict(instance.handle["cgroup"]).pids() == set()
    assert (spec.folder / "data/workspace/file").read_text() == "kept\n"
    await maker.runtime.kill(instance)


async def test_a_guest_that_ends_by_itself_is_noticed_and_leaves_no_zombie(maker: Maker) -> None:
    instance = await maker.create(maker.spec())
    assert instance.link is not None
    instance.link.close()
    async with asyncio.timeout(SECONDS):
        await maker.runtime.wait(instance)
    assert maker.runtime.exited(instance)
    bwrap = Path(f"/proc/{instance.handle['bwrap'][0]}")
    await until(lambda: not bwrap.exists(), SECONDS)


@pytest.mark.needs("cgroup-freezer")
async def test_pause_stops_all_processes_and_a_paused_sandbox_can_be_killed(maker: Maker) -> None:
    instance = await maker.create(maker.spec())
    counter = "i=0; while :; do i=$((i+1)); echo $i > /workspace/count; done"
    await inside(instance, f"({counter}) </dev/null >/dev/null 2>&1 & echo started")
    count = maker.data_dir / "sandboxes/one/data/workspace/count"
    await until(lambda: count.exists() and count.read_text() != "", SECONDS)
    await maker.runtime.pause(instance)
    group = Group.from_dict(instance.handle["cgroup"])
    ticks = [cpu_ticks(pid) for pid in sorted(group.pids())]
    await asyncio.sleep(0.1)
    assert [cpu_ticks(pid) for pid in sorted(group.pids())] == ticks
    await maker.runtime.resume(instance)
    await until(lambda: [cpu_ticks(pid) for pid in sorted(group.pids())] != ticks, SECONDS)
    await maker.runtime.pause(instance)
    await maker.runtime.kill(instance)
    assert maker.runtime.exited(instance)


def cpu_ticks(pid: int) -> tuple[int, int]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]), int(fields[12])


@pytest.mark.needs("cgroup-freezer")
async def test_a_paused_sandbox_that_nobody_remembers_is_removed(maker: Maker) -> None:
    spec = maker.spec()
    instance = await maker.create(spec)
    await maker.runtime.pause(instance)
    other = BubblewrapRuntime(maker.data_dir)
    assert await other.orphans({"one"}) == []
    assert await other.orphans(set()) == ["one"]
    await other.destroy(spec, None)
    assert await other.orphans(set()) == []
    assert not spec.folder.exists()


async def test_another_server_finds_the_sandbox_again(maker: Maker) -> None:
    spec = maker.spec()
    instance = await maker.create(spec)
    other = BubblewrapRuntime(maker.data_dir)
    found = await other.recover(spec, instance.handle)
    assert found is not None
    assert (found.pid, found.peer_uid, found.enforcement) == (
        instance.pid,
        instance.peer_uid,
        instance.enforcement,
    )
    assert found.link is None
    assert found.socket_folder == instance.socket_folder
    assert not other.exited(found)
    await other.kill(found)
    assert other.exited(found)
    assert maker.runtime.exited(instance)
    await other.destroy(spec, found.handle)


async def test_recover_does_not_take_a_strangers_process(maker: Maker) -> None:
    spec = maker.spec()
    instance = await maker.create(spec)
    other = BubblewrapRuntime(maker.data_dir)
    pid, started = instance.handle["guest"]
    assert await other.recover(spec, {**instance.handle, "guest": [pid, started + 1]}) is None
    assert await other.recover(spec, {**instance.handle, "boot": "another"}) is None
    await maker.runtime.kill(instance)
    assert await other.recover(spec, instance.handle) is None


async def test_a_sandbox_without_a_handle_is_removed(maker: Maker) -> None:
    spec = maker.spec()
    instance = await maker.create(spec)
    other = BubblewrapRuntime(maker.data_dir)
    await other.destroy(spec, None)
    assert processes.identify(instance.pid) is None
    assert not spec.folder.exists()


async def test_a_create_that_fails_says_why_and_leaves_nothing(maker: Maker) -> None:
    await maker.create(maker.spec("warm", 9))
    spec = maker.spec(hostname="x" * 200)
    before = open_descriptors()
    with pytest.raises(errors.Unavailable, match="hostname") as caught:
        await maker.runtime.create(spec)
    assert caught.value.reason == "sandbox_start_failed"
    assert caught.value.hint
    assert not spec.folder.exists()
    assert await maker.runtime.orphans({"warm"}) == []
    assert open_descriptors() == before


async def test_a_guest_that_cannot_run_is_a_failed_create(maker: Maker) -> None:
    spec = maker.spec()
    (spec.folder / "run").mkdir()
    (spec.folder / "run" / "init").write_text("not a program")
    with pytest.raises(errors.Unavailable, match="init"):
        await maker.runtime.create(spec)
    assert await maker.runtime.orphans(set()) == []


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 6])
async def test_a_cancelled_create_leaves_nothing(maker: Maker, steps: int) -> None:
    warm = maker.spec("warm", 9)
    await maker.create(warm)
    spec = maker.spec()
    task = asyncio.create_task(maker.runtime.create(spec))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    try:
        made = await task
    except asyncio.CancelledError:
        pass
    else:
        # The loop's turns were so slow that it had been made before it was cancelled.
        assert made.link is not None
        made.link.close()
        await maker.runtime.destroy(spec, made.handle)
    assert not spec.folder.exists()
    assert await maker.runtime.orphans({"warm"}) == []


async def test_many_at_once(maker: Maker) -> None:
    specs = [maker.spec(f"box{number}", number) for number in range(20)]
    instances = await asyncio.gather(*(maker.create(spec) for spec in specs))
    answers = await asyncio.gather(*(inside(instance, "id -u") for instance in instances))
    assert [answer.output for answer in answers] == ["1000\n"] * len(specs)
    users = {
        line
        for i in instances
        for line in Path(f"/proc/{i.pid}/status").read_text().splitlines()
        if "Uid:" in line
    }
    assert len(users) == len(specs), "each has a host user of its own"


async def test_a_folder_that_a_sandbox_cannot_reach_is_refused(maker: Maker) -> None:
    closed = maker.data_dir / "closed"
    closed.mkdir()
    closed.chmod(0o700)
    folder = closed / "one"
    folder.mkdir()
    with pytest.raises(errors.Unavailable) as caught:
        await maker.runtime.create(Spec("one", folder, 1))
    assert caught.value.reason == "data_dir_not_passable"


@pytest.mark.needs("cgroup-memory", "cgroup-pids", "cgroup-cpu")
async def test_limits_hold(maker: Maker) -> None:
    limits = Limits(memory=64 << 20, cpus=0.5, processes=10, disk=None, open_files=77)
    instance = await maker.create(maker.spec(limits=limits))
    assert instance.enforcement == dict.fromkeys(
        ("memory", "cpus", "processes", "open_files"), Enforcement.FULL
    )
    assert (await inside(instance, "ulimit -n; ulimit -Hn; ulimit -c")).output.split() == ["77", "77", "0"]
    forks = "for i in $(seq 40); do sleep 300 & done; wait"
    refused = await inside(instance, f"timeout 5 sh -c '{forks}' 2>&1 || true; pkill sleep; true")
    assert "fork" in refused.output.lower()
    hungry = 'python3 -c "x = bytearray(256 << 20); print(len(x))"'
    assert (await inside(instance, hungry)).status != 0
    stats = await maker.runtime.stats(instance)
    assert stats.oom_kills is not None
    assert stats.oom_kills >= 1
    assert stats.memory is not None
    assert stats.memory <= 64 << 20
    assert not maker.runtime.exited(instance), "the guest itself lives on"


async def test_stats(maker: Maker) -> None:
    instance = await maker.create(maker.spec(limits=Limits()))
    await inside(instance, "head -c 5000000 /dev/zero > /workspace/file; mkdir /tmp/a")
    stats = await maker.runtime.stats(instance)
    assert stats.disk is not None
    assert 5_000_000 <= stats.disk < 6_000_000
    assert stats.processes in (0, None)


@pytest.mark.needs("loop-mount")
async def test_an_exact_disk_limit_stops_the_writer(maker: Maker) -> None:
    spec = maker.spec(limits=Limits(disk=16 << 20), disk_exact=True)
    instance = await maker.create(spec)
    assert instance.enforcement["disk"] is Enforcement.FULL
    assert (await inside(instance, "head -c 4000000 /dev/zero > /workspace/fits")).status == 0
    too_much = await inside(instance, "head -c 40000000 /dev/zero > /tmp/large")
    assert too_much.status != 0
    assert "No space left" in too_much.output
    stats = await maker.runtime.stats(instance)
    assert stats.disk is not None
    assert 8 << 20 < stats.disk <= 16 << 20
    other = BubblewrapRuntime(maker.data_dir)
    assert await other.recover(spec, instance.handle) is not None
    await other.destroy(spec, instance.handle)
    assert str(spec.folder) not in Path("/proc/mounts").read_text()


@pytest.mark.needs("loop-mount")
async def test_a_disk_that_is_all_that_is_left_is_found_and_removed(maker: Maker) -> None:
    spec = maker.spec(limits=Limits(memory=None, cpus=None, processes=None, disk=16 << 20), disk_exact=True)
    instance = await maker.create(spec)
    await maker.runtime.kill(instance)
    for folder in Group.from_dict(instance.handle["cgroup"]).folders.values():
        await until(partial(remove_folder, folder), SECONDS)
    other = BubblewrapRuntime(maker.data_dir)
    assert await other.orphans(set()) == ["one"]
    await other.destroy(spec, None)
    assert await other.orphans(set()) == []
    assert not spec.folder.exists()


async def test_a_disk_limit_that_is_only_measured_says_so(maker: Maker) -> None:
    instance = await maker.create(maker.spec(limits=Limits(disk=1 << 20)))
    assert instance.enforcement["disk"] is Enforcement.PARTIAL


async def test_without_cgroups_limits_are_reported_as_not_held(maker: Maker) -> None:
    maker.runtime._cgroups = None
    instance = await maker.create(maker.spec(limits=Limits(memory=1 << 30, cpus=1, processes=20)))
    assert instance.enforcement["memory"] is Enforcement.NONE
    assert instance.enforcement["cpus"] is Enforcement.NONE
    assert instance.enforcement["processes"] is Enforcement.PARTIAL
    with pytest.raises(errors.Unsupported) as caught:
        await maker.runtime.pause(instance)
    assert caught.value.reason == "pause_unsupported"
    forks = "for i in $(seq 60); do sleep 300 & done; wait"
    assert "fork" in (await inside(instance, f"timeout 5 sh -c '{forks}' 2>&1")).output.lower()
    assert await maker.runtime.orphans(set()) == ["one"]
    await maker.runtime.kill(instance)
    assert await maker.runtime.orphans(set()) == []


async def test_a_killed_bwrap_does_not_hide_the_guest(maker: Maker) -> None:
    spec = maker.spec()
    instance = await maker.create(spec)
    os.kill(instance.handle["bwrap"][0], signal.SIGKILL)
    assert (await inside(instance, "echo alive")).output == "alive\n"
    assert not maker.runtime.exited(instance)
    await maker.runtime.kill(instance)
    assert processes.identify(instance.pid) is None


async def test_the_real_guest_starts_and_ends_with_a_server_that_never_adopted_it(data_dir: Path) -> None:
    runtime = BubblewrapRuntime(data_dir)
    folder = data_dir / "one"
    folder.mkdir()
    spec = Spec("one", folder, 1)
    instance = await runtime.create(spec)
    try:
        assert not runtime.exited(instance)
        assert os.readlink(f"/proc/{instance.pid}/exe") == "/run/paddock/init"
        assert instance.link is not None
        instance.link.close()
        async with asyncio.timeout(SECONDS):
            await runtime.wait(instance)
    finally:
        await runtime.destroy(spec, instance.handle)
