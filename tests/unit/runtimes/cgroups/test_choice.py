from __future__ import annotations

from pathlib import Path

from paddock.runtimes.cgroups import Hierarchies, find_cgroups, instance_key
from paddock.runtimes.cgroups.v1 import CgroupsV1
from paddock.runtimes.cgroups.v2 import CgroupsV2

ALL = frozenset({"memory", "cpu", "pids"})


def test_the_version_that_holds_more_limits_is_used(tmp_path: Path) -> None:
    v1 = {"memory": tmp_path, "pids": tmp_path}
    assert isinstance(find_cgroups("key", Hierarchies(v1, tmp_path, ALL)), CgroupsV2)
    assert isinstance(
        find_cgroups("key", Hierarchies({**v1, "cpu": tmp_path}, tmp_path, frozenset({"memory"}))), CgroupsV1
    )
    assert isinstance(find_cgroups("key", Hierarchies({**v1, "cpu": tmp_path}, tmp_path, ALL)), CgroupsV2)
    assert find_cgroups("key", Hierarchies()) is None


def test_two_data_folders_never_share_a_key(tmp_path: Path) -> None:
    assert instance_key(tmp_path / "a") != instance_key(tmp_path / "b")
    assert instance_key(tmp_path / "a") == instance_key(tmp_path / "x" / ".." / "a")
