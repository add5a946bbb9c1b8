"""A token bucket for each caller."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from paddock.errors import RateLimited

MAX_KEYS = 10_000


@dataclass(slots=True)
class _Bucket:
    level: float
    at: float


class RateLimiter:
    """Beyond `max_keys` the callers seen longest ago are forgotten: their buckets had most time to fill."""

    def __init__(
        self,
        per_second: float,
        burst: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_keys: int = MAX_KEYS,
    ) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._max_keys = max_keys
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def check(self, key: str) -> None:
        """Count one request, or refuse it."""
        wait = self.take(key)
        if wait > 0:
            raise RateLimited("too many requests", hint=f"try again in {math.ceil(wait * 1000)} ms")

    def take(self, key: str) -> float:
        """0.0: granted. Otherwise the seconds until the next one would be."""
        now = self._clock()
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(self._burst, now)
            if len(self._buckets) > self._max_keys:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
            bucket.level = min(self._burst, bucket.level + (now - bucket.at) * self._per_second)
            bucket.at = now
        if bucket.level >= 1:
            bucket.level -= 1
            return 0.0
        return (1 - bucket.level) / self._per_second
