from __future__ import annotations

from pathlib import Path

import pytest

from paddock.config import DataDir
from paddock.errors import Conflict
from paddock.server.belonging import belong_together
from paddock.store import Store


async def met(folder: Path, database: Path) -> None:
    data = DataDir(folder)
    data.ensure()
    store = await Store.open(f"sqlite:///{database}")
    try:
        await belong_together(data, store)
    finally:
        await store.close()


async def test_a_folder_and_its_database_stay_together(tmp_path: Path) -> None:
    for _ in range(2):
        await met(tmp_path / "data", tmp_path / "one.db")


async def test_a_used_folder_refuses_another_database(tmp_path: Path) -> None:
    await met(tmp_path / "data", tmp_path / "one.db")
    (tmp_path / "data" / "sandboxes" / "sb-somebody").mkdir()
    with pytest.raises(Conflict, match="do not belong together") as caught:
        await met(tmp_path / "data", tmp_path / "two.db")
    assert caught.value.reason == "foreign_database"


async def test_an_empty_folder_takes_a_new_database(tmp_path: Path) -> None:
    await met(tmp_path / "data", tmp_path / "one.db")
    await met(tmp_path / "data", tmp_path / "two.db")


async def test_a_database_refuses_another_folder(tmp_path: Path) -> None:
    await met(tmp_path / "data", tmp_path / "one.db")
    with pytest.raises(Conflict, match="do not belong together"):
        await met(tmp_path / "other", tmp_path / "one.db")
