"""The tables. `record` and `data` are JSON as text: their shape belongs to the rooms above."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, Table, Text

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

# SQLite makes only a column that says INTEGER an alias of its row number.
RowNumber = BigInteger().with_variant(Integer, "sqlite")

sandboxes = Table(
    "sandboxes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text),
    # "tenant/name" while the sandbox lives and NULL afterwards, so that a name can be used again.
    Column("name_key", Text, unique=True),
    Column("tenant", Text),
    Column("runtime", Text, nullable=False),
    Column("state", Text, nullable=False, index=True),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("record", Text, nullable=False),
)

execs = Table(
    "execs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("sandbox_id", Text, nullable=False, index=True),
    Column("state", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("finished_at", Double),
    Column("record", Text, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("sandbox_id", Text),
    Column("exec_id", Text),
    Column("data", Text, nullable=False),
    Index(None, "sandbox_id", "id"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("role", Text, nullable=False),
    Column("hash", Text, nullable=False, unique=True),
    Column("created_at", Double, nullable=False),
    Column("last_used_at", Double),
    Column("expires_at", Double),
    Column("revoked_at", Double),
)

audit = Table(
    "audit",
    metadata,
    Column("id", RowNumber, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("detail", Text, nullable=False),
    sqlite_autoincrement=True,
)

uid_slots = Table(
    "uid_slots",
    metadata,
    Column("slot", Integer, primary_key=True, autoincrement=False),
    Column("owner", Text, nullable=False, unique=True),
)

meta = Table(
    "meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
