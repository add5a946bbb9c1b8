from __future__ import annotations

from pathlib import Path

from paddock.runtimes.bwrap_args import (
    FIRST_FILTER_FD,
    GUEST,
    Features,
    Places,
    launch_args,
    sandbox_args,
    shared_args,
    shared_memory,
)
from paddock.runtimes.host_view import HostView

VIEW = HostView(("/usr", "/lib64"), (("usr/bin", "/bin"),), Path("/data/system/etc"))
PLACES = Places(Path("/s/w"), Path("/s/h"), Path("/s/t"), Path("/s/o"), Path("/s/r"))


def pairs(args: list[str], option: str, width: int) -> list[tuple[str, ...]]:
    return [tuple(args[at + 1 : at + 1 + width]) for at, value in enumerate(args) if value == option]


def test_every_namespace_is_asked_for_and_none_is_optional() -> None:
    args = shared_args(VIEW, Features(disable_userns=True), filters=2)
    for name in ("user", "pid", "net", "ipc", "uts", "cgroup"):
        assert f"--unshare-{name}" in args
    assert not [arg for arg in args if arg.endswith("-try")]
    assert "--share-net" not in args
    assert "--die-with-parent" not in args


def test_every_filter_is_loaded() -> None:
    args = shared_args(VIEW, Features(disable_userns=False), filters=2)
    assert pairs(args, "--add-seccomp-fd", 1) == [(str(FIRST_FILTER_FD),), (str(FIRST_FILTER_FD + 1),)]


def test_nested_namespaces_are_switched_off_where_bwrap_can() -> None:
    assert "--disable-userns" in shared_args(VIEW, Features(disable_userns=True), filters=1)
    assert "--disable-userns" not in shared_args(VIEW, Features(disable_userns=False), filters=1)


def test_the_host_is_shown_read_only() -> None:
    args = shared_args(VIEW, Features(disable_userns=True), filters=1)
    expected = [("/usr", "/usr"), ("/lib64", "/lib64"), ("/data/system/etc", "/etc")]
    assert pairs(args, "--ro-bind", 2) == expected
    assert pairs(args, "--symlink", 2) == [("usr/bin", "/bin")]
    assert pairs(args, "--bind", 2) == []


def test_only_the_sandboxs_own_folders_are_writable() -> None:
    args = sandbox_args(PLACES, "box", 1 << 30)
    assert pairs(args, "--bind", 2) == [
        ("/s/w", "/workspace"),
        ("/s/h", "/home/paddock"),
        ("/s/t", "/tmp"),
        ("/s/o", "/mnt/user-data/outputs"),
    ]
    assert pairs(args, "--ro-bind", 2) == [("/s/r", "/run/paddock")]
    assert pairs(args, "--remount-ro", 1) == [("/dev",), ("/",)]
    assert pairs(args, "--hostname", 1) == [("box",)]
    assert args[-2:] == ["--", GUEST]


def test_shared_memory_is_bounded_both_ways() -> None:
    assert shared_memory(1 << 30) == 512 << 20
    assert shared_memory(1 << 20) == 16 << 20
    assert shared_memory(None) == shared_memory(64 << 30) == 1 << 30


def test_the_launcher_gets_what_applies() -> None:
    args = launch_args(["/c/tasks"], 70, 64, 5, 7, "/usr/bin/bwrap", "title")
    assert args == [
        *("paddock-launch", "-g", "/c/tasks", "-u", "70", "-p", "5"),
        *("-f", "64", "-o", "300", "-k", "7", "--", "/usr/bin/bwrap", "title"),
    ]
    assert "-u" not in launch_args([], None, 64, None, 7, "/usr/bin/bwrap", "title")
