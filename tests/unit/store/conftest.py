from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest


class SecondConnection:
    """Somebody else at the same SQLite file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextlib.contextmanager
    def holding_the_lock(self) -> Iterator[None]:
        with contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")


@pytest.fixture
def second_connection(tmp_path: Path) -> SecondConnection:
    return SecondConnection(tmp_path / "paddock.db")
