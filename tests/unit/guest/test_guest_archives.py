"""pack and unpack, checked against Python's tarfile."""

from __future__ import annotations

import errno
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from tests.unit.guest.driver import BUILTIN, STDIN_WANTED, TRANSIENT, Guest, Outcome


def archive(*members: tuple[str, bytes | str | None], format_: int = tarfile.PAX_FORMAT) -> bytes:
    """Bytes make a file, text a symbolic link, None a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format_) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.mtime = 1_000_000_000
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
                continue
            info.type = tarfile.DIRTYPE if content is None else tarfile.SYMTYPE
            info.mode = 0o755
            info.linkname = content or ""
            tar.addfile(info)
    return out.getvalue()


def unpacked(done: Outcome) -> dict[str, int]:
    assert done.exit is not None
    assert done.exit.code == 0, done.stderr
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


def refused(done: Outcome) -> str:
    assert done.exit is not None
    assert done.exit.code != 0
    return str(json.loads(done.stderr)["error"])


def make_tree(top: Path) -> None:
    (top / "sub").mkdir(parents=True)
    (top / "sub/file").write_bytes(b"content")
    (top / "sub/file").chmod(0o751)
    (top / "empty").mkdir(mode=0o700)
    (top / "big").write_bytes(os.urandom(700_000))
    (top / ("long" * 30)).mkdir()
    (top / ("long" * 30) / ("name" * 50)).write_bytes(b"x")
    (top / "é€").write_bytes(b"unicode")
    Path(os.fsdecode(os.fsencode(top) + b"/\xff\xfe")).write_bytes(b"bytes")
    (top / "link").symlink_to("sub/file")
    (top / "far").symlink_to("/" + "t" * 200)
    os.mkfifo(top / "fifo")
    os.utime(top / "sub/file", ns=(0, 1_111_111_111_222_333_444))
    os.utime(top / "big", ns=(0, -1_250_000_000))
    os.utime(top / "empty", ns=(0, 5_000_000_000))


def describe(top: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in [top, *sorted(top.rglob("*"))]:
        info, name = path.lstat(), str(path.relative_to(top))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("folder", info.st_mode, info.st_mtime_ns if name == "empty" else 0)
        elif path.is_file():
            found[name] = ("file", info.st_mode, info.st_mtime_ns, path.read_bytes())
    return found


def test_a_tree_survives_the_journey(guest: Guest, tmp_path: Path) -> None:
    make_tree(tmp_path / "tree")
    packed = guest.builtin("pack", str(tmp_path / "tree"))
    assert packed.exit is not None
    assert packed.exit.code == 0
    counts = unpacked(guest.builtin("unpack", str(tmp_path / "made/here"), stdin=bytes(packed.stdout)))
    assert counts["files"] == 7
    assert describe(tmp_path / "made/here/tree") == describe(tmp_path / "tree")


def test_python_reads_what_pack_writes(guest: Guest, tmp_path: Path) -> None:
    make_tree(tmp_path / "tree")
    packed = guest.builtin("pack", str(tmp_path / "tree"))
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
        members = {member.name: member for member in tar}
        file = tar.extractfile("tree/big")
        assert file is not None
        assert file.read() == (tmp_path / "tree/big").read_bytes()
    assert f"tree/{'long' * 30}/{'name' * 50}" in members
    assert os.fsdecode(b"tree/\xff\xfe") in members
    assert members["tree/far"].linkname == "/" + "t" * 200
    assert members["tree/big"].mtime == -1.25
    assert "tree/fifo" not in members
    assert len(packed.stdout) % 10240 == 0


def test_pack_of_one_file_and_of_a_link_to_it(guest: Guest, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"alone")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        packed = guest.builtin("pack", str(tmp_path / name))
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
            (member,) = tar.getmembers()
            assert (member.name, member.isfile(), member.size) == (name, True, 5)


def test_a_file_that_changes_while_it_is_packed_gives_a_valid_archive(guest: Guest, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    growing, shrinking = tmp_path / "t/a", tmp_path / "t/b"
    for path in (growing, shrinking):
        path.write_bytes(b"x" * 3_000_000)
    guest.wire.auto_ack = False
    channel = guest.start("pack", str(tmp_path / "t"), flags=BUILTIN | TRANSIENT, window=65536)
    outcome = guest.wire.outcomes[channel]
    guest.wire.until(lambda: outcome.position == 65536)
    with growing.open("ab") as file:
        file.write(b"y" * 1_000_000)
    os.truncate(shrinking, 1000)
    guest.wire.auto_ack = True
    guest.wire.send(8, outcome.position.to_bytes(8, "little"), channel)
    guest.wait(channel)
    with tarfile.open(fileobj=io.BytesIO(outcome.stdout)) as tar:
        for member in tar:
            if member.isfile():
                content = tar.extractfile(member)
                assert content is not None
                assert len(content.read()) == member.size


@pytest.mark.parametrize("format_", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_unpack_understands_every_usual_format(guest: Guest, tmp_path: Path, format_: int) -> None:
    # USTAR splits a long name in two parts of at most 155 and 100 bytes.
    long = "folder" * 20 + "/" + "name" * 20
    members = [("./", None), ("./a//b/", None), ("a/b/file", b"1" * 513), (long, b"2"), ("link", "a/b")]
    data = archive(*members, format_=format_)
    top = tmp_path / "top"
    assert unpacked(guest.builtin("unpack", str(top), stdin=data)) == {"files": 3, "bytes": 514}
    assert (top / "a/b/file").read_bytes() == b"1" * 513
    assert (top / long).read_bytes() == b"2"
    assert (top / "a/b/file").stat().st_mtime == 1_000_000_000
    assert os.readlink(top / "link") == "a/b"


def test_long_names_and_links_in_gnu_format(guest: Guest, tmp_path: Path) -> None:
    name, target = "/".join(["x" * 90] * 4), "/" + "y" * 300
    data = archive((name, b"1"), ("link", target), format_=tarfile.GNU_FORMAT)
    unpacked(guest.builtin("unpack", str(tmp_path / "t"), stdin=data))
    assert (tmp_path / "t" / name).read_bytes() == b"1"
    assert os.readlink(tmp_path / "t/link") == target


def test_hard_links_stay_inside(guest: Guest, tmp_path: Path) -> None:
    def with_link(target: str) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            file = tarfile.TarInfo("a/file")
            file.size = 1
            tar.addfile(file, io.BytesIO(b"x"))
            link = tarfile.TarInfo("b/link")
            link.type, link.linkname = tarfile.LNKTYPE, target
            tar.addfile(link)
        return out.getvalue()

    top = tmp_path / "top"
    unpacked(guest.builtin("unpack", str(top), stdin=with_link("a/file")))
    assert (top / "a/file").samefile(top / "b/link")
    (tmp_path / "outside").write_text("secret")
    for target in ("../outside", str(tmp_path / "outside")):
        assert refused(guest.builtin("unpack", str(top), stdin=with_link(target)))
    (top / "door").symlink_to("..")
    assert refused(guest.builtin("unpack", str(top), stdin=with_link("door/outside")))
    assert (tmp_path / "outside").stat().st_nlink == 1


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/tmp/out", "a/..", ".."])
def test_names_that_lead_out_are_refused(guest: Guest, tmp_path: Path, name: str) -> None:
    assert "archive contains" in refused(
        guest.builtin("unpack", str(tmp_path / "t"), stdin=archive((name, b"x")))
    )
    assert not (tmp_path / "out").exists()


def test_links_are_made_but_never_followed(guest: Guest, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("untouched")
    top = tmp_path / "top"
    attacks = [
        archive(("door", str(outside)), ("door/file", b"bad")),
        archive(("door", str(outside)), ("door/", None), ("door/file", b"bad")),
        archive(("door", "../outside"), ("door/new/deep/file", b"bad")),
    ]
    for data in attacks:
        assert refused(guest.builtin("unpack", str(top), stdin=data))
    # A link in the place of a file is replaced, not written through.
    unpacked(guest.builtin("unpack", str(top), stdin=archive(("f", str(outside / "file")), ("f", b"mine"))))
    assert (top / "f").read_bytes() == b"mine"
    assert not (top / "f").is_symlink()
    assert (outside / "file").read_text() == "untouched"
    assert [path.name for path in outside.iterdir()] == ["file"]


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE, b"Z"])
def test_devices_and_unknown_entries_are_refused(guest: Guest, tmp_path: Path, kind: bytes) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("thing")
        info.type = kind
        tar.addfile(info)
    done = guest.builtin("unpack", str(tmp_path / "t"), stdin=out.getvalue())
    if kind == tarfile.CONTTYPE:  # a file, to everybody
        assert unpacked(done)["files"] == 1
    else:
        assert "archive contains" in refused(done)


def test_setuid_does_not_survive_and_folder_modes_come_last(guest: Guest, tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        folder = tarfile.TarInfo("locked")
        folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o555, 7
        tar.addfile(folder)
        file = tarfile.TarInfo("locked/file")
        file.mode = 0o6755
        tar.addfile(file)
    unpacked(guest.builtin("unpack", str(tmp_path / "t"), stdin=out.getvalue()))
    assert (tmp_path / "t/locked/file").stat().st_mode & 0o7777 == 0o755
    locked = (tmp_path / "t/locked").stat()
    assert (locked.st_mode & 0o7777, locked.st_mtime) == (0o555, 7)
    (tmp_path / "t/locked").chmod(0o755)


def test_what_is_not_a_whole_archive_is_refused(guest: Guest, tmp_path: Path) -> None:
    whole = archive(("file", b"x" * 2000), ("other", b"y"))
    broken = bytearray(whole)
    broken[600] ^= 1  # content, not header: nobody can notice
    unpacked(guest.builtin("unpack", str(tmp_path / "t"), stdin=bytes(broken)))
    broken[10] ^= 1
    for data in (
        b"",
        b"x" * 2048,
        whole[:100],
        whole[:512],
        whole[:1000],
        whole[:2560],
        whole[:3000],
        bytes(broken),
    ):
        done = guest.builtin("unpack", str(tmp_path / "t"), stdin=data)
        assert done.exit is not None
        assert done.exit.code == errno.EINVAL


def test_an_upload_that_fails_early_does_not_hang_the_host(guest: Guest, tmp_path: Path) -> None:
    flags = BUILTIN | TRANSIENT | STDIN_WANTED
    channel = guest.start("unpack", str(tmp_path / "t"), flags=flags)
    guest.feed(channel, b"not an archive" * 200_000)
    assert refused(guest.wait(channel))
