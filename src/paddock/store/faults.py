"""Turns what a database driver raises into Paddock's errors."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError

from paddock.errors import Conflict, Exhausted, Invalid, PaddockError, Unavailable

_BUSY = {"SQLITE_BUSY", "SQLITE_LOCKED", "40001", "40P01", "55P03"}
_FULL = {"SQLITE_FULL", "53100"}
_UNIQUE = {"SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_ROWID", "23505"}
_SQLITE_AWAY = ("SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_CORRUPT", "SQLITE_NOTADB")


def translate(error: Exception) -> PaddockError:
    if isinstance(error, PaddockError):
        return error
    code = _code(error)
    if code in _UNIQUE:
        return Conflict("it exists already", reason="exists", hint="choose another name")
    if code in _FULL:
        return Exhausted("the disk of the database is full", reason="disk_full", hint="free some space")
    if code in _BUSY or code.startswith("SQLITE_BUSY"):
        return Unavailable("the database is busy", reason="store_busy", hint="try again")
    if isinstance(error, IntegrityError):
        return PaddockError(f"the database refuses the record: {error.orig}")
    if _cannot_hold(error):
        return Invalid("a value that the database cannot hold", reason="unstorable", hint="remove NUL bytes")
    if isinstance(error, DBAPIError) and (error.connection_invalidated or _away(error, code)):
        return Unavailable(
            f"the database is away: {error.orig}",
            reason="store_away",
            hint="see that it runs; try again",
        )
    return PaddockError(f"the database failed: {error}")


def is_disconnect(error: Exception) -> bool:
    return isinstance(error, DBAPIError) and error.connection_invalidated


def _code(error: Exception) -> str:
    origin = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(origin, sqlite3.Error):
        return getattr(origin, "sqlite_errorname", "") or ""
    return getattr(origin, "sqlstate", None) or ""


def _cannot_hold(error: Exception) -> bool:
    origin = error.orig if isinstance(error, StatementError) else error
    if isinstance(origin, UnicodeError | OverflowError):
        return True
    # psycopg refuses a NUL itself, the server other values: class 22 is "data exception".
    return type(origin).__name__ == "DataError" or _code(error).startswith("22")


def _away(error: DBAPIError, code: str) -> bool:
    """I/O errors of SQLite; of PostgreSQL what has no code (no connection came about) or says goodbye."""
    if isinstance(error.orig, sqlite3.Error):
        return code.startswith(_SQLITE_AWAY)
    return not code or code.startswith(("08", "53", "57", "58"))
