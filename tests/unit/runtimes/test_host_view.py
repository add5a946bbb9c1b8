from __future__ import annotations

import os
from pathlib import Path

from paddock.runtimes.host_view import build_view, install_bytes, install_file


def make_host(root: Path) -> None:
    for name in ("usr/bin", "lib64", "etc/ssl/certs", "etc/ssl/private", "etc/profile.d"):
        (root / name).mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    for name in (
        "ld.so.cache",
        "ssl/certs/ca.crt",
        "ssl/private/key",
        "shadow",
        "gitconfig",
        "profile.d/x.sh",
    ):
        (root / "etc" / name).write_text(name)
        (root / "etc" / name).chmod(0o644)
    (root / "etc/services").write_text("private by mistake")
    (root / "etc/services").chmod(0o600)
    (root / "etc/localtime").symlink_to("/usr/share/zoneinfo/UTC")
    (root / "etc/passwd").write_text("root:x:0:0:the host's own:/root:/bin/bash\n")


def test_only_harmless_files_of_etc_are_copied(tmp_path: Path) -> None:
    host, system = tmp_path / "host", tmp_path / "system"
    make_host(host)
    system.mkdir()
    etc = build_view(system, host).etc
    found = {str(path.relative_to(etc)) for path in etc.rglob("*") if not path.is_dir()}
    generated = {"passwd", "group", "hosts", "hostname", "resolv.conf", "nsswitch.conf", "mtab"}
    assert found == {"ld.so.cache", "ssl/certs/ca.crt", "localtime"} | generated
    assert "the host's own" not in (etc / "passwd").read_text()
    assert os.readlink(etc / "localtime") == "/usr/share/zoneinfo/UTC"


def test_system_folders_are_shown_as_they_are_on_the_host(tmp_path: Path) -> None:
    host, system = tmp_path / "host", tmp_path / "system"
    make_host(host)
    system.mkdir()
    view = build_view(system, host)
    assert view.folders == ("/usr", "/lib64")
    assert view.symlinks == (("usr/bin", "/bin"),)


def test_the_copy_is_made_once_until_the_host_changes(tmp_path: Path) -> None:
    host, system = tmp_path / "host", tmp_path / "system"
    make_host(host)
    system.mkdir()
    first = build_view(system, host).etc
    assert build_view(system, host).etc == first
    assert [path.name for path in system.iterdir()] == [first.name]
    (host / "etc/ld.so.cache").write_text("new libraries")
    assert build_view(system, host).etc != first
    assert first.is_dir(), "sandboxes that run still show it"


def test_everyone_can_read_the_copy_whatever_the_umask(tmp_path: Path) -> None:
    host, system = tmp_path / "host", tmp_path / "system"
    make_host(host)
    system.mkdir()
    before = os.umask(0o077)
    try:
        etc = build_view(system, host).etc
        program = install_bytes(b"program", system, "guest", 0o755)
    finally:
        os.umask(before)
    for path in (etc, *etc.rglob("*")):
        if not path.is_symlink():
            assert path.stat().st_mode & 0o004, path
    assert program.stat().st_mode & 0o777 == 0o755


def test_an_installed_file_is_never_changed(tmp_path: Path) -> None:
    source = tmp_path / "program"
    source.write_bytes(b"one")
    first = install_file(source, tmp_path, "guest", 0o755)
    source.write_bytes(b"two")
    second = install_file(source, tmp_path, "guest", 0o755)
    assert (first.read_bytes(), second.read_bytes()) == (b"one", b"two")
