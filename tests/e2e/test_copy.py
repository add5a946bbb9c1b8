from __future__ import annotations

import io
import json
import os
import stat
import tarfile
from pathlib import Path

import pytest

from tests.e2e.command import Paddock

pytestmark = [pytest.mark.needs("bwrap", "cc"), pytest.mark.timeout(400)]


@pytest.fixture
def tree(paddock: Paddock, tmp_path: Path) -> Path:
    """A folder with some of everything."""
    folder = tmp_path / "tree"
    (folder / "sub" / "empty").mkdir(parents=True)
    (folder / "sub" / "data").write_bytes(os.urandom(700_000))
    (folder / "script").write_text("#!/bin/sh\n")
    (folder / "script").chmod(0o755)
    (folder / "link").symlink_to("sub/data")
    (folder / "ünïcode name").write_text("x")
    return folder


def snapshot(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = (path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))
        else:
            found[name] = None
    return found


def test_a_folder_there_and_back(paddock: Paddock, box: str, tree: Path, tmp_path: Path) -> None:
    paddock.text("cp", str(tree), f"{box}:/workspace")
    assert paddock.text("files", "ls", box) == "tree/\n"
    paddock.text("cp", f"{box}:/workspace/tree", str(tmp_path / "back"))
    assert snapshot(tmp_path / "back") == snapshot(tree)
    # The target exists now, and takes it under its own name.
    paddock.text("cp", f"{box}:/workspace/tree", str(tmp_path / "back"))
    assert snapshot(tmp_path / "back" / "tree") == snapshot(tree)


def test_a_folder_under_a_new_name_and_its_contents_alone(
    paddock: Paddock, box: str, tree: Path, tmp_path: Path
) -> None:
    paddock.text("cp", str(tree), f"{box}:fresh")
    paddock.text("cp", f"{tree}/.", f"{box}:.")
    assert "sub/" in paddock.text("files", "ls", box).split("\n")
    paddock.text("cp", f"{box}:fresh/.", str(tmp_path))
    assert (tmp_path / "script").exists()


def test_a_file_there_and_back(paddock: Paddock, box: str, tmp_path: Path) -> None:
    data = os.urandom(5 << 20)
    (tmp_path / "a.bin").write_bytes(data)
    (tmp_path / "a.bin").chmod(0o750)
    paddock.text("cp", str(tmp_path / "a.bin"), f"{box}:/workspace")
    paddock.text("cp", str(tmp_path / "a.bin"), f"{box}:other.bin")
    assert paddock.json("files", "stat", box, "other.bin")["mode"] == "0750"
    told = paddock.json("cp", f"{box}:a.bin", str(tmp_path / "b.bin"))
    assert told == {"bytes": len(data), "skipped": []}
    assert (tmp_path / "b.bin").read_bytes() == data
    (tmp_path / "into").mkdir()
    paddock.text("cp", f"{box}:other.bin", str(tmp_path / "into"))
    assert (tmp_path / "into" / "other.bin").read_bytes() == data


def test_streams(paddock: Paddock, box: str, tree: Path) -> None:
    paddock.text("cp", "-", f"{box}:piped", input=b"\x00piped\xff")
    assert paddock.run("cp", f"{box}:piped", "-").stdout == b"\x00piped\xff"
    paddock.text("cp", str(tree), f"{box}:/workspace")
    archive = paddock.run("cp", f"{box}:tree", "-").stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert "tree/sub/data" in tar.getnames()
    paddock.text("files", "mkdir", box, "again")
    paddock.text("cp", "-", f"{box}:again", input=archive)
    assert paddock.text("files", "ls", box, "again") == "tree/\n"


def test_mistakes(paddock: Paddock, box: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert paddock.run("cp", str(tmp_path / "missing"), f"{box}:x").returncode == 3
    assert paddock.run("cp", f"{box}:missing", str(tmp_path)).returncode == 3
    assert paddock.run("cp", str(tmp_path / "file"), "missing-box:x").returncode == 3
    assert paddock.run("cp", str(tmp_path / "file"), f"{box}:missing/").returncode == 3
    assert paddock.run("cp", f"{box}:/workspace", str(tmp_path / "file")).returncode == 1
    paddock.text("cp", str(tmp_path / "file"), f"{box}:file")
    assert paddock.run("cp", str(tmp_path), f"{box}:file").returncode == 1
    assert paddock.run("cp", f"{box}:file", str(tmp_path / "missing" / "x")).returncode == 1


def test_links_out_of_the_folder_are_left_out_and_named(paddock: Paddock, box: str, tmp_path: Path) -> None:
    script = "mkdir d; ln -s /etc/passwd d/evil; ln -s ../../x d/worse; echo 1 >d/good"
    paddock.text("exec", box, "--", "sh", "-c", script)
    done = paddock.run("cp", f"{box}:d", str(tmp_path / "d"))
    assert done.returncode == 0
    assert b"evil" in done.stderr
    assert b"worse" in done.stderr
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["good"]
    told = json.loads(paddock.run("cp", "--json", f"{box}:d", str(tmp_path / "e")).stdout)
    assert len(told["skipped"]) == 2


def test_a_download_replaces_a_link_instead_of_following_it(
    paddock: Paddock, box: str, tmp_path: Path
) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "f").symlink_to(tmp_path / "victim")
    paddock.text("files", "put", box, "f", input=b"theirs")
    paddock.text("cp", f"{box}:f", str(tmp_path / "f"))
    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / "f").read_text() == "theirs"
