from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from paddock.events import Event, EventLog
from paddock.events import log as log_module
from paddock.store import Store

WAIT_SECONDS = 30.0


@pytest.fixture
async def log(store: Store) -> EventLog:
    return await EventLog.open(store)


async def take(events: AsyncIterator[Event], count: int) -> list[Event]:
    async with asyncio.timeout(WAIT_SECONDS):
        return [await anext(events) for _ in range(count)]


def numbers(events: list[Event]) -> list[int]:
    return [event.data["n"] for event in events]


async def test_ids_increase_and_records_read_back(log: EventLog) -> None:
    data = {"text": "a\0b \udcff ü", "list": [1, None, {"x": True}]}
    first = log.append("sandbox.created", sandbox_id="s1", data=data)
    second = log.append("exec.started", sandbox_id="s1", exec_id="e1")
    assert (first.id, second.id) == (1, 2)
    assert await log.read() == [first, second]
    assert log.last_id == 2


async def test_reading_pages_and_filters(log: EventLog) -> None:
    for n in range(12):
        log.append("even" if n % 2 == 0 else "odd", sandbox_id=f"s{n % 3}", data={"n": n})
    assert numbers(await log.read(after=3, limit=2)) == [3, 4]
    assert numbers(await log.read(sandbox_id="s1")) == [1, 4, 7, 10]
    assert numbers(await log.read(sandbox_id="s1", kinds=["even"])) == [4, 10]
    assert numbers(await log.read(kinds=["other"])) == []


async def test_ids_go_on_after_a_restart(store: Store, log: EventLog) -> None:
    for _ in range(5):
        log.append("x")
    await store.flush()
    await log.prune(keep=0)
    again = await EventLog.open(store)
    assert again.append("y").id == 6


async def test_following_replays_and_goes_on_live(log: EventLog) -> None:
    for n in range(10):
        log.append("x", data={"n": n})
    follower = log.follow(after=4)
    assert numbers(await take(follower, 6)) == [4, 5, 6, 7, 8, 9]
    waiting = asyncio.create_task(take(follower, 1))
    await asyncio.sleep(0)
    log.append("x", data={"n": 10})
    assert numbers(await waiting) == [10]


async def test_following_replays_what_an_earlier_process_wrote(store: Store, log: EventLog) -> None:
    total = log_module._BATCH * 2 + 10
    for n in range(total):
        log.append("x", data={"n": n})
    await store.flush()
    again = await EventLog.open(store)
    follower = again.follow(after=0)
    again.append("x", data={"n": total})
    assert numbers(await take(follower, total + 1)) == list(range(total + 1))


async def test_following_from_now(log: EventLog) -> None:
    log.append("x", data={"n": 0})
    follower = log.follow(after=None)
    log.append("x", data={"n": 1})
    assert numbers(await take(follower, 1)) == [1]


@pytest.mark.parametrize("after", [-5, 10**12])
async def test_following_from_an_id_that_never_was(log: EventLog, after: int) -> None:
    first = log.append("x", data={"n": 0})
    follower = log.follow(after=after)
    log.append("x", data={"n": 1})
    expected = [0, 1] if after < first.id else [1]
    assert numbers(await take(follower, len(expected))) == expected


async def test_a_follower_sees_only_what_it_asked_for(log: EventLog) -> None:
    follower = log.follow(after=0, sandbox_id="s1", kinds={"a"})
    for n in range(40):
        log.append("ab"[n % 2], sandbox_id=f"s{n % 4 // 2}", data={"n": n})
    assert numbers(await take(follower, 10)) == [n for n in range(40) if n % 4 == 2]


async def test_a_follower_far_behind_misses_and_repeats_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "RING", 8)
    monkeypatch.setattr(log_module, "_BATCH", 5)
    log = await EventLog.open(store)
    everything, some = log.follow(after=0), log.follow(after=0, sandbox_id="s3")
    seen: list[int] = []
    seen_some: list[int] = []
    for n in range(200):
        log.append("x", sandbox_id=f"s{n % 7}", data={"n": n})
        if n % 20 == 19:
            seen += numbers(await take(everything, 3))
        if n % 50 == 25:
            seen_some += numbers(await take(some, 2))
        if n % 9 == 0:
            await store.flush()
    assert len(log._recent) == 8
    seen += numbers(await take(everything, 200 - len(seen)))
    wanted = [n for n in range(200) if n % 7 == 3]
    seen_some += numbers(await take(some, len(wanted) - len(seen_some)))
    assert seen == list(range(200))
    assert seen_some == wanted


async def test_many_followers_and_writers_at_once(log: EventLog) -> None:
    followers = [asyncio.create_task(take(log.follow(after=0), 300)) for _ in range(10)]

    async def append_some() -> None:
        for _ in range(100):
            log.append("x")
            await asyncio.sleep(0)

    await asyncio.gather(*(append_some() for _ in range(3)))
    for seen in await asyncio.gather(*followers):
        assert [event.id for event in seen] == list(range(1, 301))


async def test_followers_see_only_what_is_committed(store: Store, log: EventLog) -> None:
    follower = log.follow(after=0)
    log.append("x")
    [event] = await take(follower, 1)
    other = await EventLog.open(store)
    assert other.last_id >= event.id


async def test_a_follower_that_leaves_is_forgotten(log: EventLog) -> None:
    task = asyncio.create_task(take(log.follow(), 1))
    await asyncio.sleep(0)
    assert len(log._sleeping) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not log._sleeping
    log.append("x")


async def test_pruning_keeps_the_newest(log: EventLog) -> None:
    for n in range(20):
        log.append("x", data={"n": n})
    await log.prune(keep=5)
    assert numbers(await log.read()) == [15, 16, 17, 18, 19]
