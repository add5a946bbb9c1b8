from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.chaos.stage import Box, Stage

SEED = int(os.environ.get("PADDOCK_CHAOS_SEED", "20"))


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Random choices that can be made again: pytest shows what is printed here when the test fails."""
    print(f"PADDOCK_CHAOS_SEED={SEED}")
    return random.Random(f"{SEED} {request.node.name}")


@pytest.fixture(scope="module")
def house() -> Iterator[Stage]:
    """The folder that the tests of one module share, and the server that the last of them left."""
    made = Stage()
    yield made
    made.close()


@pytest_asyncio.fixture
async def stage(house: Stage) -> AsyncIterator[Stage]:
    async with house.open() as opened:
        yield opened


@pytest_asyncio.fixture
async def box(stage: Stage) -> Box:
    return await stage.create()
