from __future__ import annotations

import stat
from pathlib import Path

import pytest

from paddock.errors import Unavailable
from paddock.store import write_private


def test_a_private_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("a much longer text than before")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("untouched")
    link.symlink_to(target)
    write_private(link, "new")
    assert target.read_text() == "untouched"
    assert not link.is_symlink()


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        write_private(tmp_path / "none" / "secret", "x")
    assert caught.value.reason == "data_dir"
