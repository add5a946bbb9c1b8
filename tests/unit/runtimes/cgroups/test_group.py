from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from paddock.runtimes.cgroups.group import (
    Group,
    make_folder,
    read_field,
    read_number,
    remove_empty_parents,
    remove_folder,
)


def test_a_group_survives_the_store() -> None:
    group = Group(1, {"memory": "/m/x", "pids": "/p/x"})
    assert Group.from_dict(group.as_dict()) == group
    assert Group.from_dict(None).folders == {}


def test_a_folder_that_two_controllers_share_is_joined_once() -> None:
    assert Group(1, {"cpu": "/c/x", "cpuacct": "/c/x"}).join_files() == ["/c/x/tasks"]
    assert Group(2, {"": "/u/x"}).join_files() == ["/u/x/cgroup.procs"]


def test_pids_of_a_group_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/cgroup.procs").write_text("12\n13\n")
    group = Group(1, {"memory": str(tmp_path / "a"), "pids": str(tmp_path / "gone")})
    assert group.pids() == {12, 13}
    assert not group.holds(12), "it is not in all of them"
    assert Group(1, {"memory": str(tmp_path / "a")}).holds(12)


def test_folders_are_removed_from_the_inside_out(tmp_path: Path) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    assert remove_folder(str(tmp_path / "a"))
    assert not (tmp_path / "a").exists()
    assert remove_folder(str(tmp_path / "a"))


def test_a_busy_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/process").write_text("as good as one")
    assert not remove_folder(str(tmp_path / "a"))


def test_parents_that_vanish_meanwhile_are_made_again(tmp_path: Path) -> None:
    made = 0

    def make_parents() -> None:
        nonlocal made
        made += 1
        (tmp_path / "paddock").mkdir()
        if made == 1:
            shutil.rmtree(tmp_path / "paddock")

    make_folder(str(tmp_path / "paddock/one"), make_parents)
    assert made == 2
    assert (tmp_path / "paddock/one").is_dir()


def test_a_folder_in_use_by_another_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one/process").write_text("as good as one")
    with pytest.raises(FileExistsError):
        make_folder(str(tmp_path / "one"), lambda: None)


def test_numbers_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("oom 1\noom_kill 3\n")
    assert read_field(str(tmp_path / "stat"), "oom_kill") == 3
    assert read_field(str(tmp_path / "stat"), "other") is None
    assert read_field(str(tmp_path / "none"), "oom") is None
    assert read_number(str(tmp_path / "none")) is None


def test_the_last_one_takes_its_empty_parents_along(tmp_path: Path) -> None:
    one, other = (
        tmp_path / "base" / "paddock" / "key" / "one",
        tmp_path / "base" / "paddock" / "key" / "other",
    )
    one.mkdir(parents=True)
    other.mkdir()
    one.rmdir()
    remove_empty_parents(str(one))
    assert other.is_dir()
    other.rmdir()
    remove_empty_parents(str(other))
    assert list((tmp_path / "base").iterdir()) == [], "and what is not ours stays"
