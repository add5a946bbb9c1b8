from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from paddock.config import DataDir
from paddock.errors import Unavailable


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_let_sandboxes_pass_and_nobody_look(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "deep" / "data")
    before = os.umask(0o077)
    try:
        data.ensure()
    finally:
        os.umask(before)
    assert mode(data.root) == mode(data.sandboxes) == mode(data.tenants) == 0o711
    assert mode(data.private) == mode(data.logs) == 0o700
    assert data.private in data.database.parents
    assert data.private in data.lock.parents


def test_ensure_puts_modes_right(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    data.ensure()
    data.private.chmod(0o755)
    data.ensure()
    assert mode(data.private) == 0o700


def test_a_file_in_the_way_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(Unavailable) as caught:
        DataDir(tmp_path / "data").ensure()
    assert caught.value.reason == "data_dir"
    assert "--data-dir" in (caught.value.hint or "")


def test_a_file_system_that_cannot_spread_folders_does_not_matter(tmp_path: Path) -> None:
    shown = Path("/dev/shm")
    if not shown.is_dir() or not os.access(shown, os.W_OK):
        pytest.skip("missing ability: /dev/shm")
    with tempfile.TemporaryDirectory(dir=shown) as folder:
        DataDir(Path(folder)).ensure()
        assert (Path(folder) / "sandboxes").is_dir()
    for _ in range(2):
        DataDir(tmp_path).ensure()
    (tmp_path / "sandboxes" / "one").mkdir()
