"""One server per data folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddock.config import DataDir, Settings
from paddock.errors import Conflict, Invalid, Unavailable
from paddock.server.app import locked, opened


def data_dir(folder: Path) -> DataDir:
    data = DataDir(folder)
    data.ensure()
    return data


def test_a_second_one_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    data = data_dir(tmp_path)
    with locked(data):
        with pytest.raises(Conflict) as caught, locked(data):
            pass
        assert caught.value.reason == "data_dir_in_use"
        assert str(os.getpid()) in caught.value.message
        assert str(tmp_path) in caught.value.message
    with locked(data):
        pass


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught, locked(DataDir(tmp_path / "missing")):
        pass
    assert caught.value.reason == "data_dir"


async def test_everything_is_opened_and_closed(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data", default_runtime="fake")
    async with opened(settings) as services:
        assert services.recovered
        assert set(services.runtimes) >= {"bubblewrap", "fake"}
        assert services.tokens.verify((tmp_path / "data" / "admin-token").read_text().strip()).name == "admin"
        with pytest.raises(Conflict):
            async with opened(settings):
                pass
    assert services.closing.is_set()
    async with opened(settings) as services:
        assert services.sandboxes.list() == []


async def test_an_unknown_runtime_is_refused_before_anything_runs(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data", default_runtime="magic")
    with pytest.raises(Invalid) as caught:
        async with opened(settings):
            pass
    assert caught.value.reason == "runtime_unknown"
    assert "bubblewrap" in (caught.value.hint or "")
    with locked(DataDir(tmp_path / "data")):
        pass


async def test_the_runtime_without_isolation_must_be_asked_for(tmp_path: Path) -> None:
    async with opened(Settings(data_dir=tmp_path / "data")) as services:
        assert "fake" not in services.runtimes
