"""What one measurement gives: samples, and the few numbers that describe them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the samples lie, between the two nearest ones."""
    if not values:
        raise ValueError("no samples")
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@dataclass(frozen=True, slots=True)
class Samples:
    """Measured values of one kind, as they came."""

    name: str
    unit: str
    values: tuple[float, ...]
    more_is_better: bool = False

    @property
    def median(self) -> float:
        return percentile(self.values, 0.5)

    @property
    def p90(self) -> float:
        """Nine in ten are this good or better."""
        return self._as_good_as(0.9)

    @property
    def p99(self) -> float:
        return self._as_good_as(0.99)

    def _as_good_as(self, share: float) -> float:
        return percentile(self.values, 1 - share if self.more_is_better else share)
