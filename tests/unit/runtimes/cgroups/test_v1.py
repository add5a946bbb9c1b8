from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from paddock.runtimes.base import Limits
from paddock.runtimes.bwrap_remains import remove_empty
from paddock.runtimes.cgroups.group import OVERHEAD, remove_folder
from paddock.runtimes.cgroups.hierarchy import find_hierarchies
from paddock.runtimes.cgroups.v1 import CgroupsV1
from paddock.runtimes.waiting import until

NONE = Limits(memory=None, cpus=None, processes=None)


def stand_in(tmp_path: Path) -> CgroupsV1:
    return CgroupsV1({"memory": tmp_path / "memory", "freezer": tmp_path / "freezer"}, "paddock/key")


def test_only_controllers_that_the_host_has_hold_limits(tmp_path: Path) -> None:
    cgroups = stand_in(tmp_path)
    assert cgroups.limits == {"memory"}
    assert cgroups.can_freeze
    assert not CgroupsV1({"memory": tmp_path}, "paddock/key").can_freeze


def test_a_controller_that_no_limit_needs_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "freezer").mkdir()
    group = stand_in(tmp_path).create("one", NONE)
    assert set(group.folders) == {"freezer"}


def test_a_limit_that_cannot_be_set_leaves_no_cgroup(tmp_path: Path) -> None:
    cgroups = stand_in(tmp_path)
    with pytest.raises(OSError, match="limit_in_bytes"):
        cgroups.create("one", Limits(memory=1 << 20, cpus=None, processes=None))
    assert [path for root in cgroups.roots() for path in root.iterdir()] == []


@pytest.fixture
def cgroups() -> Iterator[CgroupsV1]:
    found = find_hierarchies().v1
    if not {"memory", "pids", "cpu", "freezer"} <= found.keys():
        pytest.skip("missing ability: cgroup version 1")
    real = CgroupsV1(found, f"paddock/test{os.getpid()}")
    yield real
    remove_empty(real.roots())
    assert not any(root.exists() for root in real.roots())


@pytest.mark.needs("root", "cgroup-memory", "cgroup-pids", "cgroup-cpu", "cgroup-freezer")
async def test_a_real_one_limits_counts_and_freezes(cgroups: CgroupsV1) -> None:
    group = cgroups.create("one", Limits(memory=64 << 20, cpus=0.25, processes=7))
    folders = group.folders
    assert int(Path(folders["memory"], "memory.limit_in_bytes").read_text()) == 64 << 20
    assert int(Path(folders["pids"], "pids.max").read_text()) == 7 + OVERHEAD
    quota = int(Path(folders["cpu"], "cpu.cfs_quota_us").read_text())
    assert quota / int(Path(folders["cpu"], "cpu.cfs_period_us").read_text()) == 0.25
    join = "".join(f"echo 0 > '{file}'; " for file in group.join_files())
    process = subprocess.Popen(["sh", "-c", f"{join} exec sleep 600"], stdin=subprocess.DEVNULL)
    try:
        await until(lambda: group.holds(process.pid), 20)
        assert group.pids() == {process.pid}
        cgroups.freeze(group)
        await until(lambda: cgroups.frozen(group), 20)
        cgroups.thaw(group)
        assert not cgroups.frozen(group)
        # It is charged for memory only from its first page after it has joined.
        await until(lambda: (cgroups.usage(group).memory_peak or 0) > 0, 20)
        assert cgroups.usage(group).memory is not None
        assert cgroups.usage(group).oom_kills == 0
    finally:
        process.kill()
        process.wait()
        for folder in folders.values():
            await until(partial(remove_folder, folder), 20)


@pytest.mark.needs("root", "cgroup-memory")
async def test_what_a_cut_short_removal_left_is_taken_over(cgroups: CgroupsV1) -> None:
    first = cgroups.create("one", NONE)
    second = cgroups.create("one", NONE)
    assert first == second
    for folder in second.folders.values():
        assert remove_folder(folder)
