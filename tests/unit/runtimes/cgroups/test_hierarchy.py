from __future__ import annotations

from pathlib import Path

from paddock.runtimes.cgroups.hierarchy import find_hierarchies


def write_proc(tmp_path: Path, mounts: list[str], groups: list[str]) -> Path:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "mountinfo").write_text("".join(f"{line}\n" for line in mounts))
    (proc / "cgroup").write_text("".join(f"{line}\n" for line in groups))
    return proc


def mount(folder: Path, kind: str, options: str = "rw", root: str = "/") -> str:
    return f"30 20 0:26 {root} {folder} rw,relatime shared:9 - {kind} {kind} {options}"


def make_v2(
    folder: Path, handed_down: str = "", controllers: str = "cpu memory pids", procs: str = ""
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.subtree_control").write_text(handed_down)
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.procs").write_text(procs)
    return folder


def test_version_1_is_below_the_servers_own_cgroup(tmp_path: Path) -> None:
    memory, cpu = tmp_path / "memory", tmp_path / "cpu,cpuacct"
    (memory / "own").mkdir(parents=True)
    cpu.mkdir()
    mounts = [mount(memory, "cgroup", "rw,memory"), mount(cpu, "cgroup", "rw,cpu,cpuacct")]
    proc = write_proc(tmp_path, mounts, ["4:memory:/own", "3:cpu,cpuacct:/", "1:name=systemd:/x", "0::/"])
    found = find_hierarchies(proc)
    assert found.v1 == {"memory": memory / "own", "cpu": cpu, "cpuacct": cpu}
    assert found.v2 is None


def test_a_mount_of_a_part_of_the_hierarchy_is_understood(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    (pids / "inner").mkdir(parents=True)
    inside = write_proc(tmp_path, [mount(pids, "cgroup", "rw,pids", root="/box")], ["2:pids:/box/inner"])
    assert find_hierarchies(inside).v1 == {"pids": pids / "inner"}


def test_a_cgroup_outside_of_the_mount_is_not_guessed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    proc = write_proc(tmp_path, [mount(pids, "cgroup", "rw,pids", root="/box")], ["2:pids:/elsewhere"])
    assert find_hierarchies(proc).v1 == {}


def test_version_2_uses_the_nearest_ancestor_that_hands_controllers_down(tmp_path: Path) -> None:
    top = make_v2(tmp_path / "top", "cpu memory pids")
    app = make_v2(top / "app.slice", "memory pids")
    make_v2(app / "paddock.service", "", procs="1\n")
    proc = write_proc(tmp_path, [mount(top, "cgroup2")], ["0::/app.slice/paddock.service"])
    found = find_hierarchies(proc)
    assert found.v2 == app
    assert found.v2_controllers == {"memory", "pids"}


def test_version_2_without_controllers_is_not_used(tmp_path: Path) -> None:
    top = make_v2(tmp_path / "top", "", controllers="")
    proc = write_proc(tmp_path, [mount(top, "cgroup2")], ["0::/"])
    assert find_hierarchies(proc).v2 is None


def test_a_hosts_real_files_are_understood() -> None:
    found = find_hierarchies()
    for folder in found.v1.values():
        assert folder.is_dir()
    assert found.v2 is None or (found.v2 / "cgroup.procs").exists()
