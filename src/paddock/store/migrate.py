"""Brings a database to the schema that this version knows."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from paddock.errors import Conflict

HEAD = "0001"
"""The newest migration. Known without Alembic, whose import would cost every start a quarter of a second."""
MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK_KEY = 0x7061_6464_6F63_6B


def migrate(engine: Engine) -> None:
    with engine.begin() as connection:
        # Two servers that start together take turns; for SQLite the BEGIN IMMEDIATE sees to it.
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        if current(connection) != HEAD:
            _upgrade(connection)


def current(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return found


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    version = current(connection)
    if version is not None and version not in known:
        raise Conflict(
            f"the database is at version {version}, which this Paddock does not know (newest known: {HEAD})",
            reason="database_newer",
            hint="it was written by a newer Paddock: install that one, or use another data folder",
        )
    command.upgrade(config, "head")
