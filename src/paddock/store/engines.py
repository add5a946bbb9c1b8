"""Database engines: one for the writer, one for readers."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from paddock.errors import Invalid, Unavailable

READERS = 4
_BUSY_SECONDS = 10


def parse_url(text: str) -> URL:
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise _bad_url("not a database address", text) from error
    backend = url.get_backend_name()
    if backend in {"postgresql", "postgres"}:
        return url.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise _bad_url(f"{backend} is no database that Paddock knows", text)
    if not url.database or url.database == ":memory:":
        raise _bad_url("a database in memory would be lost with the server", text)
    return url.set(drivername="sqlite+pysqlite")


def _bad_url(problem: str, text: str) -> Invalid:
    scheme = text.split(":", 1)[0][:20]
    return Invalid(
        f"{problem} ({scheme}:…)",
        reason="database_url",
        hint="use sqlite:////path/to/paddock.db or postgresql://user@host/database",
    )


def writer_engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(url, pool_size=1, max_overflow=1, connect_args={"connect_timeout": 10})
    _create_private(Path(str(url.database)))
    engine = create_engine(url, pool_size=1, max_overflow=1, connect_args=_sqlite_arguments())
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def reader_engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(
            url,
            pool_size=READERS,
            pool_pre_ping=True,
            isolation_level="AUTOCOMMIT",
            connect_args={"connect_timeout": 10, "options": "-c default_transaction_read_only=on"},
        )
    engine = create_engine(url, pool_size=READERS, connect_args=_sqlite_arguments())
    event.listen(engine, "connect", _prepare_sqlite_reader)
    return engine


def _sqlite_arguments() -> dict[str, Any]:
    # isolation_level None: the driver starts no transactions behind our back.
    return {"check_same_thread": False, "timeout": _BUSY_SECONDS, "isolation_level": None}


def _create_private(path: Path) -> None:
    """The journal beside the database takes over its mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise Unavailable(
            f"cannot open the database {path}: {error.strerror}",
            reason="store_away",
            hint="see that the folder exists and is yours",
        ) from error


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    for pragma in (
        f"busy_timeout = {_BUSY_SECONDS * 1000}",
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "foreign_keys = ON",
        "temp_store = MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _prepare_sqlite_reader(connection: sqlite3.Connection, _record: object) -> None:
    _prepare_sqlite(connection, _record)
    connection.execute("PRAGMA query_only = ON").close()


def _begin_immediate(connection: Connection) -> None:
    # A transaction that starts by reading and then writes can fail at once instead of waiting its turn.
    connection.exec_driver_sql("BEGIN IMMEDIATE")
