"""What of the host can be seen, read, written or reached from inside: nothing."""

from __future__ import annotations

import pytest

from tests.security.conftest import Found

pytestmark = pytest.mark.leaks_ok

OWN_FOLDERS = ["/dev/shm", "/home/paddock", "/mnt/user-data/outputs", "/tmp", "/workspace"]


def test_the_tree_has_nothing_but_what_was_put_there(found: Found) -> None:
    allowed = {
        "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "mnt", "proc", "run", "sbin",
        "tmp", "usr", "var", "workspace",
    }  # fmt: skip
    assert set(found.get("view", "top of the tree")) <= allowed
    if found.outside:
        assert not set(found.outside["view"]["top of the tree"]) <= allowed


def test_host_paths_do_not_exist(found: Found) -> None:
    got = found.get("view", "host paths")
    assert {path: how for path, how in got.items() if how != "ENOENT"} == {}
    if found.outside:
        assert "allowed" in found.outside["view"]["host paths"].values()


def test_canary_files_do_not_exist(found: Found) -> None:
    """A file of the host, the database, the guest's program, files of another sandbox and another tenant."""
    got = found.get("view", "read canaries")
    assert set(got) == {"temporary", "database", "guest's program", "another sandbox", "another tenant"}
    assert set(got.values()) == {"ENOENT"}
    if found.outside:
        assert set(found.outside["view"]["read canaries"].values()) == {"allowed"}


@pytest.mark.parametrize(
    ("name", "nothing"),
    [
        ("canaries through somebody's root", []),
        ("cgroup files", []),
        ("own cgroup", ["/"]),
        ("see the host's canary process", False),
        ("kill the host's canary process", "ESRCH"),
        ("interfaces", ["lo"]),
        ("reach the internet", "ENETUNREACH"),
        ("reach the host's abstract socket", "ECONNREFUSED"),
        ("abstract sockets", []),
        ("System V shared memory", "ENOENT"),
        ("POSIX message queue", "ENOENT"),
        ("POSIX shared memory", "ENOENT"),
    ],
)
def test_nothing_of_the_host(found: Found, name: str, nothing: object) -> None:
    found.refused("view", name, nothing)


def test_the_hosts_loopback_is_another_one(found: Found) -> None:
    got = found.get("view", "reach the host's loopback port")
    assert set(got.values()) <= {"ECONNREFUSED", "EADDRNOTAVAIL", "ENETUNREACH", "EAFNOSUPPORT"}, got
    if found.outside:
        assert found.outside["view"]["reach the host's loopback port"]["127.0.0.1"] == "allowed"


def test_only_the_guest_is_seen(found: Found) -> None:
    found.refused("view", "processes", ["init"])


def test_the_environment_is_the_sandboxs_own(found: Found) -> None:
    usual = {"HOME", "LANG", "LC_CTYPE", "LOGNAME", "PADDOCK_SANDBOX_ID", "PATH", "PWD", "SHELL", "USER"}
    assert set(found.get("view", "environment")) <= usual
    assert found.get("view", "environment of visible processes") is False


def test_a_command_gets_three_descriptors(found: Found) -> None:
    assert found.get("view", "inherited descriptors") == [0, 1, 2]


def test_only_ones_own_folders_can_be_written(found: Found) -> None:
    assert found.get("view", "writable folders") == OWN_FOLDERS
    assert found.get("view", "files of other owners") == []


def test_system_files_cannot_be_changed(found: Found) -> None:
    got = dict(found.get("view", "change system files"))
    assert got.pop("write") in ("EACCES", "EROFS")
    assert got.pop("hard link") in ("EXDEV", "EPERM")
    assert set(got.values()) == {"EROFS"}, got
    assert found.get("view", "change files of one's own") == ["allowed"]
    assert found.get("view", "change the guest's program") in ("EACCES", "EROFS", "ETXTBSY")


def test_kernel_files_cannot_be_written(found: Found) -> None:
    got = found.get("view", "kernel files for writing")
    assert got["/proc/sys/kernel/core_pattern"] in ("EACCES", "EROFS")
    assert set(got.values()) <= {"EACCES", "EPERM", "EROFS", "ENOENT"}, got


def test_devices_cannot_be_opened(found: Found) -> None:
    got = found.get("view", "devices for reading")
    assert {path: how for path, how in got.items() if how not in ("ENOENT", "EACCES", "EPERM")} == {}


def test_namespaces_cannot_be_changed_through_proc(found: Found) -> None:
    got = found.get("view", "namespace files")
    assert set(got.values()) <= {"EPERM", "EACCES", "ENOENT"}, got


def test_the_hosts_keys_are_not_listed(found: Found) -> None:
    assert found.get("view", "keys of the host") == ""


def test_the_mount_table_names_no_other_sandbox(found: Found) -> None:
    assert not {"another sandbox", "another tenant", "database"} & set(found.get("view", "mount sources"))


def test_there_are_no_rights(found: Found) -> None:
    sets = dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0" * 16)
    found.refused("view", "capabilities", {**sets, "NoNewPrivs": "1", "Seccomp": "2"})


def test_nobody_else_can_be_become(found: Found) -> None:
    got = found.get("view", "identity")
    assert got["ids"] == [1000] * 6
    assert got["groups"] in ([], [1000], [65534])
    assert (got["root"], got["other"], got["groups of others"]) == ("EINVAL", "EINVAL", "EPERM")
    assert (got["map"], got["one user"], got["session"]) == (1, "1", True)


def test_rights_cannot_be_raised(found: Found) -> None:
    assert set(found.get("view", "ambient and inherited rights").values()) == {"EPERM"}
