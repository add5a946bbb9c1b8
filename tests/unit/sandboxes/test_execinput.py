from __future__ import annotations

from pathlib import Path

import pytest

from paddock.sandboxes import execinput


@pytest.mark.parametrize("data", [b"", b"\0\1\xff", bytes(300_000)])
@pytest.mark.parametrize("end", [True, False])
def test_what_is_kept_comes_back(tmp_path: Path, data: bytes, end: bool) -> None:
    folder = tmp_path / "box" / "exec"
    execinput.keep(folder, data, end=end)
    assert execinput.kept(folder) == (data, end)
    assert (folder / "input").stat().st_mode & 0o777 == 0o600
    execinput.forget(folder)
    assert execinput.kept(folder) is None
    assert not folder.exists()


def test_output_beside_it_stays(tmp_path: Path) -> None:
    execinput.keep(tmp_path, b"in", end=True)
    (tmp_path / "0-0.seg").write_bytes(b"out")
    execinput.forget(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["0-0.seg"]


def test_there_need_not_be_any(tmp_path: Path) -> None:
    assert execinput.kept(tmp_path) is None
    execinput.forget(tmp_path / "nowhere")


def test_a_disk_that_does_not_take_it_is_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_bytes(b"")
    execinput.keep(folder, b"in", end=True)
    assert execinput.kept(folder) is None
