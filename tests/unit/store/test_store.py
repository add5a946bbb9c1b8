from __future__ import annotations

import asyncio
import stat
import time
from pathlib import Path

import pytest
from sqlalchemy import Insert, delete, func, insert, select, text, update
from structlog.testing import capture_logs

from paddock.errors import Conflict, Exhausted, Invalid, PaddockError, Unavailable
from paddock.store import Store
from paddock.store.schema import meta
from tests.databases import Postgres
from tests.unit.store.conftest import SecondConnection

WAIT_SECONDS = 30.0


def put(key: str, value: str = "") -> tuple[Insert, dict[str, str]]:
    return insert(meta), {"key": key, "value": value}


async def keys(store: Store) -> list[str]:
    return [row["key"] for row in await store.fetch_all(select(meta.c.key).order_by(meta.c.key))]


async def test_a_read_sees_what_was_written(store: Store) -> None:
    await store.write(put("a", "1"), insert(meta).values(key="b", value="ü\n\u2028"))
    row = await store.fetch_one(select(meta).where(meta.c.key == "b"))
    assert row is not None
    assert dict(row) == {"key": "b", "value": "ü\n\u2028"}
    assert await store.fetch_one(select(meta).where(meta.c.key == "c")) is None
    assert await keys(store) == ["a", "b"]


async def test_a_write_is_all_or_nothing(store: Store) -> None:
    await store.write(put("taken"))
    with pytest.raises(Conflict) as caught:
        await store.write(put("new"), put("taken"))
    assert caught.value.reason == "exists"
    assert await keys(store) == ["taken"]


async def test_several_rows_in_one_statement(store: Store) -> None:
    await store.write((insert(meta), [{"key": k, "value": k} for k in "abc"]))
    assert await keys(store) == ["a", "b", "c"]


async def test_among_many_only_the_impossible_one_fails(store: Store) -> None:
    await store.write(put("taken"))
    names = [f"k{n:03}" for n in range(60)]
    names[20] = names[40] = "taken"
    results = await asyncio.gather(*(store.write(put(name)) for name in names), return_exceptions=True)
    assert [n for n, result in enumerate(results) if result is not None] == [20, 40]
    assert all(isinstance(results[n], Conflict) for n in (20, 40))
    assert await keys(store) == sorted(set(names))


async def test_writes_happen_in_order(store: Store) -> None:
    await store.write(put("k", "0"))
    change = update(meta).where(meta.c.key == "k")
    for n in range(1, 50):
        store.write_later(change.where(meta.c.value == str(n - 1)).values(value=str(n)))
    await store.write(change.where(meta.c.value == "49").values(value="last"))
    row = await store.fetch_one(select(meta.c.value))
    assert row is not None
    assert row["value"] == "last"


async def test_write_later_commits_by_itself(store: Store) -> None:
    store.write_later(put("a"))
    deadline = time.monotonic() + WAIT_SECONDS
    while await keys(store) != ["a"]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_flush_waits_for_what_was_left_for_later(store: Store) -> None:
    for n in range(1200):
        store.write_later(put(f"{n:04}"))
    await store.flush()
    row = await store.fetch_one(select(func.count().label("n")).select_from(meta))
    assert row is not None
    assert row["n"] == 1200


async def test_a_late_failure_is_logged_and_harms_nobody(store: Store) -> None:
    await store.write(put("a"))
    finished: list[str] = []
    with capture_logs() as logs:
        for key in ("a", "b"):
            store.write_later(put(key), then=lambda key=key: finished.append(key))
        await store.flush()
    assert [entry["reason"] for entry in logs if entry["event"] == "store.write_failed"] == ["exists"]
    assert finished == ["a", "b"]
    assert await keys(store) == ["a", "b"]


async def test_a_write_whose_caller_gave_up_is_still_made(store: Store) -> None:
    task = asyncio.create_task(store.write(put("a")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await store.flush()
    assert await keys(store) == ["a"]


async def test_text_that_is_no_unicode_is_refused(store: Store) -> None:
    with pytest.raises(Invalid) as caught:
        await store.write(put("\udcff"))
    assert caught.value.reason == "unstorable"
    await store.write(put("fine"))


async def test_readers_cannot_write(store: Store) -> None:
    with pytest.raises(PaddockError):
        await store.fetch_all(insert(meta).values(key="x", value="").returning(meta.c.key))
    assert await keys(store) == []


async def test_closing_commits_what_was_left_for_later(database_url: str) -> None:
    store = await Store.open(database_url)
    store.write_later(put("a"))
    await store.close()
    await store.close()
    for attempt in (store.write(put("b")), store.fetch_all(select(meta)), store.flush()):
        with pytest.raises(Unavailable) as caught:
            await attempt
        assert caught.value.reason == "store_closed"
    again = await Store.open(database_url)
    try:
        assert await keys(again) == ["a"]
    finally:
        await again.close()


async def test_a_database_that_is_locked_makes_its_writer_wait_and_nobody_else(
    sqlite_store: Store, sqlite_url: str, second_connection: SecondConnection
) -> None:
    with second_connection.holding_the_lock():
        waiting = asyncio.create_task(sqlite_store.write(put("a")))
        assert await asyncio.gather(*(keys(sqlite_store) for _ in range(20))) == [[]] * 20
        assert not waiting.done()
    await asyncio.wait_for(waiting, WAIT_SECONDS)
    assert await keys(sqlite_store) == ["a"]


async def test_a_database_that_stays_locked_is_reported(
    monkeypatch: pytest.MonkeyPatch, sqlite_url: str, second_connection: SecondConnection
) -> None:
    monkeypatch.setattr("paddock.store.engines._BUSY_SECONDS", 0.05)
    store = await Store.open(sqlite_url)
    try:
        with second_connection.holding_the_lock():
            results = await asyncio.gather(*(store.write(put(k)) for k in "ab"), return_exceptions=True)
        assert [getattr(result, "reason", None) for result in results] == ["store_busy"] * 2
        await store.write(put("c"))
        assert await keys(store) == ["c"]
    finally:
        await store.close()


async def test_a_full_disk_is_reported_and_passes(sqlite_store: Store) -> None:
    await sqlite_store.write(text("PRAGMA max_page_count = 40"))
    with pytest.raises(Exhausted) as caught:
        await sqlite_store.write(put("big", "x" * 1_000_000))
    assert caught.value.reason == "disk_full"
    await sqlite_store.write(put("small"))
    assert await keys(sqlite_store) == ["small"]


async def test_the_file_is_private(sqlite_store: Store, tmp_path: Path) -> None:
    await sqlite_store.write(put("a"))
    files = list(tmp_path.glob("paddock.db*"))
    assert len(files) >= 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


async def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot open"):
        await Store.open(f"sqlite:///{tmp_path}/none/x.db")


async def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"something else" * 1000)
    with pytest.raises(Unavailable) as caught:
        await Store.open(f"sqlite:///{tmp_path}/x.db")
    assert caught.value.reason == "store_away"


@pytest.mark.parametrize("url", ["mysql://h/d", "sqlite://", "sqlite:///:memory:", "nonsense", ""])
async def test_an_address_that_makes_no_sense(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        await Store.open(url)
    assert caught.value.reason == "database_url"


async def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        await Store.open(f"postgresql://nobody@/none?host={tmp_path}")
    assert caught.value.reason == "store_away"


@pytest.mark.needs("postgres")
async def test_a_broken_connection_is_made_anew(postgres: Postgres, postgres_url: str) -> None:
    store = await Store.open(postgres_url)
    try:
        await store.write(put("a"))
        await keys(store)
        postgres.administer(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'test_%'"
            f" AND datname = '{postgres_url.split('/')[3].split('?')[0]}'"
        )
        await asyncio.gather(*(store.write(put(k)) for k in "bcd"))
        assert await keys(store) == ["a", "b", "c", "d"]
    finally:
        await store.close()


async def test_deleting(store: Store) -> None:
    await store.write(put("a"), put("b"))
    await store.write(delete(meta).where(meta.c.key == "a"))
    assert await keys(store) == ["b"]
