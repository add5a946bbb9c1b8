"""Where the server is, for the command line on the same machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from paddock.config import DataDir, Settings
from paddock.errors import Invalid
from paddock.server.run import published, running


def test_the_address_is_there_while_the_server_is(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    with published(data, "http://127.0.0.1:1"):
        told = json.loads(data.server_json.read_text())
        assert (told["url"], told["pid"]) == ("http://127.0.0.1:1", os.getpid())
        assert data.server_json.stat().st_mode & 0o777 == 0o644
        assert list(tmp_path.iterdir()) == [data.server_json]
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    with published(DataDir(tmp_path / "missing"), "http://127.0.0.1:1"):
        assert not (tmp_path / "missing").exists()


async def test_without_authentication_only_loopback_is_served(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path).model_copy(update={"host": "0.0.0.0", "no_auth": True})
    with pytest.raises(Invalid) as caught:
        async with running(settings):
            pass
    assert caught.value.reason == "no_auth"
