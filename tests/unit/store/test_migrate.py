from __future__ import annotations

import asyncio

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import select, text

from paddock.errors import Conflict
from paddock.store import Store
from paddock.store.engines import parse_url, writer_engine
from paddock.store.migrate import HEAD, MIGRATIONS, current
from paddock.store.schema import meta, metadata


def test_head_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


async def test_the_migrations_make_the_schema(store: Store, database_url: str) -> None:
    engine = writer_engine(parse_url(database_url))
    try:
        with engine.connect() as connection:
            assert current(connection) == HEAD
            assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    finally:
        engine.dispose()


async def test_two_that_start_together_both_succeed(database_url: str) -> None:
    stores = await asyncio.gather(*(Store.open(database_url) for _ in range(3)))
    try:
        assert [await store.fetch_all(select(meta)) for store in stores] == [[]] * 3
    finally:
        await asyncio.gather(*(store.close() for store in stores))


async def test_a_newer_database_is_refused_and_left_alone(database_url: str) -> None:
    store = await Store.open(database_url)
    await store.write(text("UPDATE alembic_version SET version_num = '9999'"))
    await store.close()
    with pytest.raises(Conflict) as caught:
        await Store.open(database_url)
    assert caught.value.reason == "database_newer"
    assert "9999" in caught.value.message
    engine = writer_engine(parse_url(database_url))
    try:
        with engine.connect() as connection:
            assert current(connection) == "9999"
    finally:
        engine.dispose()
