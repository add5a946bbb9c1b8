from __future__ import annotations

from pathlib import Path

from paddock.runtimes.base import Pausable, Runtime
from paddock.runtimes.factory import make_runtimes


def test_bubblewrap_is_always_there(tmp_path: Path) -> None:
    runtimes = make_runtimes(tmp_path, allow_fake=False)
    assert list(runtimes) == ["bubblewrap"]
    assert isinstance(runtimes["bubblewrap"], Runtime)
    assert isinstance(runtimes["bubblewrap"], Pausable)


def test_the_fake_one_is_there_when_asked_for(tmp_path: Path) -> None:
    assert set(make_runtimes(tmp_path, allow_fake=True)) == {"bubblewrap", "fake"}
