from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from paddock.cli.extract import extract
from paddock.errors import PaddockError

Member = tuple[str, str, str | bytes]
"""Its type (file, folder, link, hard, fifo), its name, and content or target."""

KINDS = {
    "folder": tarfile.DIRTYPE,
    "link": tarfile.SYMTYPE,
    "hard": tarfile.LNKTYPE,
    "fifo": tarfile.FIFOTYPE,
    "device": tarfile.CHRTYPE,
    "file": tarfile.REGTYPE,
}


def archive(*members: Member, mode: int = 0o644) -> io.BytesIO:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for kind, name, content in members:
            info = tarfile.TarInfo(name)
            info.type = KINDS[kind]
            info.mode = 0o755 if kind == "folder" else mode
            info.mtime = 1_000_000_000
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.linkname = content
                tar.addfile(info)
    made.seek(0)
    return made


def unpack(tmp_path: Path, *members: Member, mode: int = 0o644) -> tuple[Path, list[str]]:
    target = tmp_path / "outer" / "target"
    target.mkdir(parents=True, exist_ok=True)
    skipped: list[str] = []
    extract(archive(*members, mode=mode), str(target), advance=lambda _: None, skip=skipped.append)
    return target, skipped


def everything_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_files_folders_and_links_arrive_without_the_first_folder(tmp_path: Path) -> None:
    target, skipped = unpack(
        tmp_path,
        ("folder", "src", ""),
        ("folder", "src/a", ""),
        ("file", "src/a/f", b"hello"),
        ("link", "src/l", "a/f"),
        ("link", "src/a/up", "../a/f"),
        ("hard", "src/h", "src/a/f"),
    )
    assert skipped == []
    assert (target / "l").read_bytes() == b"hello"
    assert (target / "a/up").read_bytes() == b"hello"
    assert (target / "h").stat().st_ino == (target / "a/f").stat().st_ino
    assert (target / "a/f").stat().st_mtime == 1_000_000_000
    assert (target / "a").stat().st_mtime == 1_000_000_000


def test_modes_lose_what_is_dangerous(tmp_path: Path) -> None:
    target, _ = unpack(tmp_path, ("file", "s/f", b"x"), mode=0o7777)
    assert stat.S_IMODE((target / "f").stat().st_mode) == 0o755
    target, _ = unpack(tmp_path, ("file", "s/g", b"x"), mode=0)
    assert stat.S_IMODE((target / "g").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "member",
    [
        ("file", "/etc/evil", b"x"),
        ("file", "s/../../evil", b"x"),
        ("file", "../evil", b"x"),
        ("link", "s/l", "/etc/passwd"),
        ("link", "s/l", ".."),
        ("link", "s/l", "a/../../x"),
        ("link", "s/d/l", "../../x"),
        ("link", "s/l", "a/.."),
        ("link", "s/l", ""),
        ("hard", "s/h", "/etc/passwd"),
        ("hard", "s/h", "s/missing"),
        ("hard", "s/h", "../x"),
        ("fifo", "s/p", ""),
        ("device", "s/c", ""),
    ],
)
def test_what_could_leave_is_left_out(tmp_path: Path, member: Member) -> None:
    target, skipped = unpack(tmp_path, ("folder", "s", ""), member, ("file", "s/good", b"1"))
    assert len(skipped) == 1
    left = everything_below(tmp_path) - {"outer", "outer/target", "outer/target/good", "outer/target/d"}
    assert left == set()
    assert (target / "good").read_bytes() == b"1"


def test_nothing_is_written_through_a_link_of_the_archive(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "outer/target").mkdir(parents=True)
    (tmp_path / "outer/target/there").symlink_to(outside)
    _, skipped = unpack(
        tmp_path,
        ("link", "s/inside", "elsewhere"),
        ("file", "s/inside/f", b"x"),
        ("file", "s/there/f", b"x"),
        ("folder", "s/there", ""),
    )
    assert len(skipped) == 3
    assert list(outside.iterdir()) == []


def test_a_file_replaces_a_link_and_not_what_it_points_to(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / "outer/target").mkdir(parents=True)
    (tmp_path / "outer/target/f").symlink_to(victim)
    target, skipped = unpack(tmp_path, ("file", "s/f", b"new"))
    assert skipped == []
    assert victim.read_bytes() == b"mine"
    assert not (target / "f").is_symlink()
    assert (target / "f").read_bytes() == b"new"


def test_a_file_that_is_hard_linked_elsewhere_is_not_written_into(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / "outer/target").mkdir(parents=True)
    os.link(victim, tmp_path / "outer/target/f")
    unpack(tmp_path, ("file", "s/f", b"new"))
    assert victim.read_bytes() == b"mine"


def test_an_archive_cannot_link_to_a_file_that_was_here_before(tmp_path: Path) -> None:
    (tmp_path / "outer/target").mkdir(parents=True)
    (tmp_path / "outer/target/mine").write_bytes(b"mine")
    _, skipped = unpack(tmp_path, ("hard", "s/h", "s/mine"))
    assert len(skipped) == 1


def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "outer/target/d").mkdir(parents=True)
    target, skipped = unpack(tmp_path, ("file", "s/d", b"x"))
    assert len(skipped) == 1
    assert (target / "d").is_dir()


def test_links_that_chain_cannot_climb_out(tmp_path: Path) -> None:
    # `d/l` is `d` itself, so that `d/l/../..` would be one folder higher than its text says.
    _, skipped = unpack(
        tmp_path,
        ("folder", "s/d", ""),
        ("link", "s/d/l", "."),
        ("link", "s/m", "d/l/../.."),
        ("file", "s/m/x", b""),
    )
    # Only the folder of that name, made for the file, may be here.
    assert [word.split(":")[0] for word in skipped] == ["s/m"]
    assert not (tmp_path / "outer/x").exists()


def test_names_that_are_no_text_arrive(tmp_path: Path) -> None:
    target, skipped = unpack(tmp_path, ("file", "s/\udcff", b"x"))
    assert skipped == []
    assert os.listdir(os.fsencode(target)) == [b"\xff"]


@pytest.mark.parametrize("cut", [100, 1200])
def test_a_broken_archive_is_an_error(tmp_path: Path, cut: int) -> None:
    data = archive(("folder", "s", ""), ("file", "s/f", b"x" * 5000)).getvalue()[:cut]
    with pytest.raises(PaddockError) as caught:
        extract(io.BytesIO(data), str(tmp_path), advance=lambda _: None, skip=lambda _: None)
    assert caught.value.reason == "archive"
