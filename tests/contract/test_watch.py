"""Following what happens to files."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from paddock.errors import NotFound
from paddock.sandboxes.model import FileEvent
from tests.contract.stage import scenario
from tests.contract.world import World


@contextlib.asynccontextmanager
async def watching(
    world: World, box: str, path: str, **fields: bool
) -> AsyncIterator[AsyncIterator[FileEvent]]:
    events = world.service.files.watch(box, path, **fields)
    try:
        assert (await asyncio.wait_for(anext(events), 30)).event == "ready"
        yield events
    finally:
        await events.aclose()  # type: ignore[attr-defined]


async def next_of(events: AsyncIterator[FileEvent], kind: str, name: str) -> FileEvent:
    async with asyncio.timeout(30):
        async for event in events:
            if event.event == kind and event.path is not None and event.path.endswith(name):
                return event
    raise AssertionError(f"no {kind} of {name}")


@scenario
async def test_changes_are_told(world: World) -> None:
    box = await world.shared()
    folder = await world.path(box)
    async with watching(world, box, folder) as events:
        await world.sh(box, f"cd {folder}; echo x > f")
        await next_of(events, "created", "f")
        await world.sh(box, f"cd {folder}; echo y >> f")
        await next_of(events, "modified", "f")
        await world.sh(box, f"cd {folder}; mv f g")
        moved = await next_of(events, "moved", "f")
        assert moved.to is not None
        assert moved.to.endswith("g")
        await world.sh(box, f"cd {folder}; rm g")
        await next_of(events, "deleted", "g")


@scenario
async def test_new_folders_are_watched_too(world: World) -> None:
    box = await world.shared()
    folder = await world.path(box)
    async with watching(world, box, folder) as events:
        await world.sh(box, f"mkdir -p {folder}/new")
        await next_of(events, "created", "new")
        await world.sh(box, f"touch {folder}/new/inside")
        await next_of(events, "created", "inside")


@scenario
async def test_only_one_level(world: World) -> None:
    box = await world.shared()
    folder = await world.path(box)
    await world.sh(box, f"mkdir {folder}/sub")
    async with watching(world, box, folder, recursive=False) as events:
        await world.sh(box, f"cd {folder}; touch sub/hidden; touch seen")
        async with asyncio.timeout(30):
            async for event in events:
                assert "hidden" not in (event.path or "")
                if (event.path or "").endswith("seen"):
                    break


@scenario
async def test_what_is_not_there(world: World) -> None:
    box = await world.shared()
    with pytest.raises(NotFound):
        await asyncio.wait_for(anext(world.service.files.watch(box, "missing")), 30)


@scenario
async def test_a_watcher_leaves_no_process(world: World) -> None:
    made = await world.create()
    for _ in range(3):
        async with watching(world, made.id, "."):
            pass
    assert (await world.sh(made.id, "echo fine")).stdout == "fine\n"
