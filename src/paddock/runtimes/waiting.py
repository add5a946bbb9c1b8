"""Waits for what the kernel does not tell: it is asked again and again, ever less often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain, repeat

_PAUSES = (0.001, 0.002, 0.004, 0.008, 0.016)
_LONGEST = 0.03


async def until(condition: Callable[[], bool], seconds: float) -> None:
    """Return when the condition holds; TimeoutError when it does not in time."""
    async with asyncio.timeout(seconds):
        for pause in chain(_PAUSES, repeat(_LONGEST)):
            if condition():
                return
            await asyncio.sleep(pause)
