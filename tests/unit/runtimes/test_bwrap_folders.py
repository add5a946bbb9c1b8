from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddock.runtimes.base import UID_BASE, Spec
from paddock.runtimes.bwrap_folders import lay_out


def guest(folder: Path) -> Path:
    program = folder / "guest"
    program.write_bytes(b"program")
    program.chmod(0o755)
    return program


def make_spec(tmp_path: Path, slot: int = 3, storage: Path | None = None) -> Spec:
    folder = tmp_path / f"sandbox-{slot}"
    folder.mkdir()
    return Spec(folder.name, folder, slot, storage=storage)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0])
def test_the_folders_are_private_and_on_the_way_to_them_one_may_pass(tmp_path: Path, umask: int) -> None:
    spec = make_spec(tmp_path)
    before = os.umask(umask)
    try:
        places = lay_out(spec, guest(tmp_path))
    finally:
        os.umask(before)
    for folder in (places.workspace, places.home, places.tmp, places.outputs):
        assert folder.stat().st_mode & 0o7777 == 0o700
        assert folder.stat().st_uid == (UID_BASE + 3 if os.geteuid() == 0 else os.geteuid())
    assert spec.folder.stat().st_mode & 0o7777 == 0o711
    assert (places.run / "init").read_bytes() == b"program"
    assert os.access(places.run / "init", os.X_OK)


def test_a_tenants_folders_outlive_the_sandbox(tmp_path: Path) -> None:
    storage = tmp_path / "tenant"
    places = lay_out(make_spec(tmp_path, 4, storage), guest(tmp_path))
    assert places.workspace == storage / "workspace"
    assert places.outputs == storage / "outputs"
    assert not places.home.is_relative_to(storage)


@pytest.mark.needs("root")
def test_storage_changes_hands_with_all_that_is_in_it_and_no_link_is_followed(tmp_path: Path) -> None:
    storage, outside = tmp_path / "tenant", tmp_path / "outside"
    outside.write_text("the host's")
    places = lay_out(make_spec(tmp_path, 5, storage), guest(tmp_path))
    (places.workspace / "deep").mkdir()
    (places.workspace / "deep" / "file").write_text("kept")
    (places.workspace / "link").symlink_to(outside)
    lay_out(make_spec(tmp_path, 6, storage), guest(tmp_path))
    assert (places.workspace / "deep" / "file").stat().st_uid == UID_BASE + 6
    assert (places.workspace / "link").lstat().st_uid == UID_BASE + 6
    assert outside.stat().st_uid == 0


def test_laying_out_again_changes_nothing(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    places = lay_out(spec, guest(tmp_path))
    (places.workspace / "file").write_text("kept")
    assert lay_out(spec, guest(tmp_path)) == places
    assert (places.workspace / "file").read_text() == "kept"
