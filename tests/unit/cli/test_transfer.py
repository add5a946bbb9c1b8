from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from paddock.cli.transfer import Progress, folder_as_tar


def packed(folder: Path, under: str) -> tuple[dict[str, tarfile.TarInfo], tarfile.TarFile, Progress]:
    progress = Progress(quiet=True)
    data = b"".join(folder_as_tar(str(folder), under, progress))
    archive = tarfile.open(fileobj=io.BytesIO(data))  # noqa: SIM115
    return {member.name: member for member in archive.getmembers()}, archive, progress


def test_a_folder_becomes_an_archive(tmp_path: Path) -> None:
    (tmp_path / "d" / "empty").mkdir(parents=True)
    (tmp_path / "d" / "f").write_bytes(b"x" * 1000)
    (tmp_path / "d" / "f").chmod(0o4755)
    (tmp_path / "d" / "l").symlink_to("/etc/passwd")
    (tmp_path / "d" / ("n" * 200)).write_bytes(b"")
    (tmp_path / "d" / "ü").write_bytes(b"")
    (tmp_path / "d" / os.fsdecode(b"\xff")).write_bytes(b"")
    members, archive, progress = packed(tmp_path / "d", "top")
    assert set(members) == {
        "top", "top/empty", "top/f", "top/l", "top/" + "n" * 200, "top/ü", "top/" + os.fsdecode(b"\xff")
    }  # fmt: skip
    assert members["top/f"].mode == 0o755
    content = archive.extractfile("top/f")
    assert content is not None
    assert content.read() == b"x" * 1000
    assert members["top/l"].linkname == "/etc/passwd"
    assert members["top/empty"].isdir()
    assert progress.done == 1000
    assert {member.uid for member in members.values()} == {0}


def test_only_what_is_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"1")
    assert set(packed(tmp_path, "")[0]) == {"f"}


def test_what_cannot_be_copied_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    members, _, progress = packed(tmp_path, "")
    assert members == {}
    assert progress.skipped == [f"{tmp_path}/pipe: not a file, a folder or a link"]


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        packed(tmp_path / "missing", "")
