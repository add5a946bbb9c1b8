"""First tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_row_number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    _create_sandboxes_and_execs()
    _create_events()
    _create_access()
    op.create_table(
        "uid_slots",
        sa.Column("slot", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.UniqueConstraint("owner", name="uq_uid_slots_owner"),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )


def _create_sandboxes_and_execs() -> None:
    op.create_table(
        "sandboxes",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text),
        sa.Column("name_key", sa.Text),
        sa.Column("tenant", sa.Text),
        sa.Column("runtime", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.UniqueConstraint("name_key", name="uq_sandboxes_name_key"),
    )
    op.create_index("ix_sandboxes_state", "sandboxes", ["state"])
    op.create_table(
        "execs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("sandbox_id", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("finished_at", sa.Double),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("ix_execs_sandbox_id", "execs", ["sandbox_id"])


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("id", _row_number, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("sandbox_id", sa.Text),
        sa.Column("exec_id", sa.Text),
        sa.Column("data", sa.Text, nullable=False),
    )
    op.create_index("ix_events_sandbox_id_id", "events", ["sandbox_id", "id"])


def _create_access() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("last_used_at", sa.Double),
        sa.Column("expires_at", sa.Double),
        sa.Column("revoked_at", sa.Double),
        sa.UniqueConstraint("name", name="uq_tokens_name"),
        sa.UniqueConstraint("hash", name="uq_tokens_hash"),
    )
    op.create_table(
        "audit",
        sa.Column("id", _row_number, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
