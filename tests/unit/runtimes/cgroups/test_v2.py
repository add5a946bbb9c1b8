"""Against a folder that stands in for a cgroup file system: this needs no host that has version 2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddock.runtimes.base import Limits
from paddock.runtimes.cgroups.group import OVERHEAD, Group
from paddock.runtimes.cgroups.v2 import CgroupsV2

ALL = frozenset({"memory", "cpu", "pids", "io"})
FILES = (
    "cgroup.procs",
    "cgroup.subtree_control",
    "cgroup.freeze",
    "memory.max",
    "memory.swap.max",
    "cpu.max",
    "pids.max",
)


@pytest.fixture
def mkdir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cgroup has its files as soon as it is made. (`tmp_path` is there already, and has none.)"""
    real = os.mkdir

    def with_files(path: str, mode: int = 0o777) -> None:
        real(path, mode)
        for name in FILES:
            Path(path, name).touch()

    monkeypatch.setattr("os.mkdir", with_files)


@pytest.mark.usefixtures("mkdir")
def test_limits_are_written_and_controllers_handed_down(tmp_path: Path) -> None:
    cgroups = CgroupsV2(tmp_path, ALL, "paddock/key")
    assert cgroups.limits == {"memory", "cpus", "processes"}
    group = cgroups.create("one", Limits(memory=1 << 30, cpus=1.5, processes=9))
    folder = tmp_path / "paddock/key/one"
    assert group.folders == {"": str(folder)}
    assert (folder / "memory.max").read_text() == str(1 << 30)
    assert (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "cpu.max").read_text() == "150000 100000"
    assert (folder / "pids.max").read_text() == str(9 + OVERHEAD)
    for parent in ("paddock", "paddock/key"):
        assert (tmp_path / parent / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert not (tmp_path / "cgroup.subtree_control").exists(), "what is not ours stays as it is"


@pytest.mark.usefixtures("mkdir")
def test_what_is_not_limited_is_not_written(tmp_path: Path) -> None:
    group = CgroupsV2(tmp_path, ALL, "paddock/key").create(
        "one", Limits(memory=None, cpus=None, processes=None)
    )
    for name in ("memory.max", "cpu.max", "pids.max"):
        assert Path(group.folders[""], name).read_text() == ""


@pytest.mark.usefixtures("mkdir")
def test_a_controller_that_is_not_handed_down_holds_nothing(tmp_path: Path) -> None:
    cgroups = CgroupsV2(tmp_path, frozenset({"memory", "pids"}), "paddock/key")
    assert cgroups.limits == {"memory", "processes"}
    group = cgroups.create("one", Limits(cpus=1.0))
    assert Path(group.folders[""], "cpu.max").read_text() == ""


@pytest.mark.usefixtures("mkdir")
def test_freezing(tmp_path: Path) -> None:
    cgroups = CgroupsV2(tmp_path, ALL, "paddock/key")
    group = cgroups.create("one", Limits())
    freeze, events = Path(group.folders[""], "cgroup.freeze"), Path(group.folders[""], "cgroup.events")
    cgroups.freeze(group)
    assert freeze.read_text() == "1"
    events.write_text("populated 1\nfrozen 0\n")
    assert not cgroups.frozen(group)
    events.write_text("populated 1\nfrozen 1\n")
    assert cgroups.frozen(group)
    cgroups.thaw(group)
    assert freeze.read_text() == "0"


def test_usage(tmp_path: Path) -> None:
    for name, text in {
        "memory.current": "5000",
        "memory.peak": "9000",
        "memory.stat": "anon 1\ninactive_file 1000\n",
        "memory.events": "low 0\noom 2\noom_kill 1\n",
        "pids.current": "5",
        "cpu.stat": "usage_usec 2500000\n",
    }.items():
        (tmp_path / name).write_text(text)
    usage = CgroupsV2(tmp_path, ALL, "paddock/key").usage(Group(2, {"": str(tmp_path)}))
    assert (usage.memory, usage.memory_peak, usage.oom_kills) == (4000, 9000, 1)
    assert (usage.cpu_seconds, usage.processes) == (2.5, 3)


def test_usage_that_a_host_does_not_count_is_unknown(tmp_path: Path) -> None:
    usage = CgroupsV2(tmp_path, ALL, "paddock/key").usage(Group(2, {"": str(tmp_path)}))
    assert usage.memory is usage.processes is usage.cpu_seconds is None
