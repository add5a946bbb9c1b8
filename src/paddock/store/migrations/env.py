"""Alembic's entry, called from `paddock.store.migrate`, which owns the connection and its transaction."""

from __future__ import annotations

from alembic import context

from paddock.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
