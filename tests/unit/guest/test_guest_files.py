"""File calls, except archives and watching."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.unit.guest.driver import (
    BUILTIN,
    RELEASE,
    STDIN_WANTED,
    TRANSIENT,
    Guest,
    Outcome,
    alive,
    eventually,
)


def entry(outcome: Outcome) -> dict[str, Any]:
    (line,) = entries(outcome)
    return line


def entries(outcome: Outcome) -> list[dict[str, Any]]:
    assert outcome.exit is not None
    assert outcome.exit.code == 0, outcome.stderr
    return [json.loads(line) for line in outcome.stdout.splitlines()]


def problem(outcome: Outcome) -> tuple[int, dict[str, str]]:
    assert outcome.exit is not None
    (line,) = outcome.stderr.splitlines()
    return outcome.exit.code, json.loads(line)


def test_stat_tells_everything(guest: Guest, tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"12345")
    file.chmod(0o640)
    os.utime(file, ns=(0, 1_234_567_890_123_456_789))
    link.symlink_to("file")
    expected = {
        "name": "file",
        "path": str(file),
        "type": "file",
        "size": 5,
        "mode": "0640",
        "uid": os.geteuid(),
        "gid": file.stat().st_gid,
        "mtime": 1_234_567_890_123_456_789,
    }
    assert entry(guest.builtin("stat", str(file), "0")) == expected
    assert entry(guest.builtin("stat", str(link), "1")) == {**expected, "name": "link", "path": str(link)}
    found = entry(guest.builtin("stat", str(link), "0"))
    assert (found["type"], found["target"]) == ("symlink", "file")
    assert entry(guest.builtin("stat", str(tmp_path) + "//", "0"))["name"] == tmp_path.name
    assert entry(guest.builtin("stat", "/", "0"))["name"] == "/"
    os.mkfifo(tmp_path / "fifo")
    assert entry(guest.builtin("stat", str(tmp_path / "fifo"), "0"))["type"] == "fifo"


def test_names_of_any_bytes_come_back(guest: Guest, tmp_path: Path) -> None:
    names = [
        b"plain",
        "é€𝄞".encode(),
        b"\xff\xfe",
        b'quote"back\\slash',
        b"new\nline\x01",
        b"\xed\xa0\x80",
        b"half\xc3",
    ]
    folder = tmp_path / "names"
    folder.mkdir()
    for name in names:
        (Path(os.fsdecode(os.fsencode(folder) + b"/" + name))).touch()
    found = entries(guest.builtin("list", str(folder), "1", "-1"))
    assert sorted(os.fsencode(item["name"]) for item in found) == sorted(names)
    for name in names:
        path = os.fsencode(folder) + b"/" + name
        assert os.fsencode(entry(guest.builtin("stat", path, "0"))["path"]) == path


def test_list_by_depth_and_limit_without_following_links(guest: Guest, tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a/b/c").mkdir(parents=True)
    (top / "a/file").touch()
    (top / "loop").symlink_to(".")

    def names(depth: str, limit: str = "-1") -> list[str]:
        return sorted(
            item.get("name", "truncated") for item in entries(guest.builtin("list", str(top), depth, limit))
        )

    assert names("1") == ["a", "loop"]
    assert names("2") == ["a", "a/b", "a/file", "loop"]
    assert names("-1") == ["a", "a/b", "a/b/c", "a/file", "loop"]
    assert names("-1", "5") == names("-1")
    assert len(names("-1", "4")) == 5
    assert entries(guest.builtin("list", str(top), "-1", "4"))[-1] == {"truncated": True}
    assert entries(guest.builtin("list", str(top), "1", "0")) == [{"truncated": True}]
    paths = {item["path"] for item in entries(guest.builtin("list", str(top), "-1", "-1"))}
    assert str(top / "a/b/c") in paths


def test_read_ranges(guest: Guest, tmp_path: Path) -> None:
    data = os.urandom(1_000_000)
    file = tmp_path / "data"
    file.write_bytes(data)
    for offset, length in ((0, -1), (0, 10), (999_990, 100), (500_000, 300_000), (2_000_000, -1), (5, 0)):
        done = guest.builtin("read", str(file), str(offset), str(length))
        assert done.stdout == data[offset:][: None if length < 0 else length]
        assert json.loads(done.stderr)["size"] == 1_000_000
    assert b"Linux" in guest.builtin("read", "/proc/version", "0", "-1").stdout


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["stat", "{}/none", "1"], "ENOENT"),
        (["stat", "{}/file/x", "0"], "ENOTDIR"),
        (["stat", "{}", "2"], "EINVAL"),
        (["list", "{}/file", "1", "1"], "ENOTDIR"),
        (["list", "{}", "x", "1"], "EINVAL"),
        (["read", "{}", "0", "-1"], "EISDIR"),
        (["read", "{}/fifo", "0", "-1"], "EINVAL"),
        (["read", "{}/file", "-1", "-1"], "EINVAL"),
        (["write", "{}/no/file", "-", "0", "0", "-"], "ENOENT"),
        (["write", "{}", "-", "0", "0", "-"], "EISDIR"),
        (["write", "{}/x/", "-", "0", "0", "-"], "EISDIR"),
        (["write", "{}/file", "-", "0", "1", "-"], "EEXIST"),
        (["write", "{}/file", "9", "0", "0", "-"], "EINVAL"),
        (["write", "{}/fifo", "-", "0", "0", "-"], "EINVAL"),
        (["write", "{}/loop", "-", "0", "0", "-"], "ELOOP"),
        (["mkdir", "{}/file", "-", "1"], "ENOTDIR"),
        (["mkdir", "{}/folder", "-", "0"], "EEXIST"),
        (["mkdir", "{}/no/folder", "-", "0"], "ENOENT"),
        (["move", "{}/none", "{}/x", "1"], "ENOENT"),
        (["move", "{}/file", "{}/folder", "0"], "EEXIST"),
        (["move", "{}/folder", "{}/folder/in", "1"], "EINVAL"),
        (["remove", "{}/none", "1"], "ENOENT"),
        (["remove", "{}/folder", "0"], "ENOTEMPTY"),
        (["remove", "/", "1"], "EINVAL"),
        (["remove", "{}/folder/..", "1"], "EINVAL"),
        (["stat", "", "0"], "ENOENT"),
        (["stat", "{}"], "EINVAL"),
        (["no-such-call"], "ENOSYS"),
    ],
)
def test_failures_name_their_errno_and_path(guest: Guest, tmp_path: Path, argv: list[str], name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/inner").touch()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    words = [word.replace("{}", str(tmp_path)) for word in argv]
    code, line = problem(guest.builtin(*words, stdin=b"" if argv[0] == "write" else None))
    assert (line["errno"], code) == (name, getattr(errno, name))
    assert line["error"]
    assert set(line) == {"errno", "error", "path"}


def test_write_replaces_in_one_step_and_keeps_the_mode(guest: Guest, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    file.chmod(0o600)
    data = os.urandom(2_000_000)
    with file.open("rb") as reader:
        found = entry(guest.builtin("write", str(file), "-", "0", "0", "-", stdin=data))
        assert reader.read() == b"old"
    assert (found["size"], found["mode"], found["path"]) == (len(data), "0600", str(file))
    assert file.read_bytes() == data
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_write_with_parents_mode_and_time(guest: Guest, tmp_path: Path) -> None:
    path = tmp_path / "a/b/c"
    found = entry(guest.builtin("write", str(path), "0751", "1", "1", "-1500000000", stdin=b"x"))
    assert (found["mode"], found["mtime"], found["size"]) == ("0751", -1_500_000_000, 1)
    found = entry(guest.builtin("write", str(tmp_path / "new"), "-", "0", "0", "-", stdin=b""))
    assert (found["mode"], found["size"]) == ("0644", 0)


def test_write_goes_through_a_link(guest: Guest, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "link").symlink_to("deep/target")
    entry(guest.builtin("write", str(tmp_path / "link"), "-", "0", "0", "-", stdin=b"through"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "deep/target").read_bytes() == b"through"


def test_a_write_without_its_end_leaves_nothing(guest: Guest, tmp_path: Path) -> None:
    target = tmp_path / "target"
    flags = BUILTIN | TRANSIENT | STDIN_WANTED
    channel = guest.start("write", str(target), "-", "0", "0", "-", flags=flags)
    guest.feed(channel, b"x" * 100_000, end=False)
    guest.wire.until(lambda: guest.wire.outcomes[channel].pid > 0)
    pid = guest.wire.outcomes[channel].pid
    guest.wire.send(RELEASE, channel=channel)
    eventually(lambda: not alive(pid))
    assert list(tmp_path.iterdir()) == []


def test_mkdir(guest: Guest, tmp_path: Path) -> None:
    path = tmp_path / "x/y"
    assert entry(guest.builtin("mkdir", str(path), "0700", "1"))["mode"] == "0700"
    assert entry(guest.builtin("mkdir", str(path) + "/", "-", "1"))["mode"] == "0700"
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o755


def test_move_with_and_without_overwriting(guest: Guest, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    two.write_text("2")
    assert problem(guest.builtin("move", str(one), str(two), "0"))[0] == errno.EEXIST
    assert entry(guest.builtin("move", str(one), str(two), "1"))["path"] == str(two)
    assert two.read_text() == "1"
    assert not one.exists()


def test_move_between_file_systems(guest: Guest, tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev or not os.access(other, os.W_OK):
        pytest.skip("missing ability: a second file system")
    tree, away = tmp_path / "tree", other / f"paddock-test-{os.getpid()}"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep/file").write_bytes(b"x" * 300_000)
    (tree / "deep/file").chmod(0o640)
    os.utime(tree / "deep/file", ns=(0, 5_000_000_001))
    (tree / "link").symlink_to("nowhere")
    try:
        entry(guest.builtin("move", str(tree), str(away), "0"))
        assert not tree.exists()
        moved = (away / "deep/file").stat()
        assert (moved.st_size, moved.st_mode & 0o777, moved.st_mtime_ns) == (300_000, 0o640, 5_000_000_001)
        assert os.readlink(away / "link") == "nowhere"
        assert [path.name for path in other.iterdir() if path.name.startswith(".paddock-")] == []
    finally:
        guest.builtin("remove", str(away), "1")
    assert not away.exists()


def test_remove_a_tree_of_any_depth_without_following_links(guest: Guest, tmp_path: Path) -> None:
    kept, tree = tmp_path / "kept", tmp_path / "tree"
    kept.mkdir()
    (kept / "file").touch()
    here = os.getcwd()
    tree.mkdir()
    try:
        os.chdir(tree)
        for level in range(700):  # a path longer than any may be
            if level % 100 == 0:
                os.symlink(kept, "link")
                os.mkfifo("fifo")
            os.mkdir("folder")
            os.chdir("folder")
    finally:
        os.chdir(here)
    done = guest.builtin("remove", str(tree), "1")
    assert done.exit is not None
    assert (done.exit.code, bytes(done.stderr)) == (0, b"")
    assert not tree.exists()
    assert (kept / "file").exists()


def test_a_builtin_runs_in_its_folder_and_says_when_it_cannot(guest: Guest, tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    assert entry(guest.builtin("stat", "here", "0", cwd=str(tmp_path)))["path"] == "here"
    assert problem(guest.builtin("stat", "here", "0", cwd="/nowhere"))[0] == errno.ENOENT


@pytest.mark.needs("root")
def test_a_builtin_has_the_rights_of_its_user(guest: Guest, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    done = guest.builtin("read", str(secret), "0", "-1", uid=65533, gid=65533)
    assert done.exit is not None
    assert done.exit.code == errno.EACCES
    assert done.stdout == b""
