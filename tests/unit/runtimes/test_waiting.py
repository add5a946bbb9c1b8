from __future__ import annotations

import pytest

from paddock.runtimes.waiting import until


async def test_until_asks_again() -> None:
    asked = 0

    def third_time() -> bool:
        nonlocal asked
        asked += 1
        return asked == 3

    await until(third_time, 20)
    assert asked == 3


async def test_until_gives_up() -> None:
    with pytest.raises(TimeoutError):
        await until(lambda: False, 0.01)
