"""Timing, interleaved: what is compared takes turns, so that a busy machine slows both sides alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.samples import Samples

Measure = Callable[[], float]
"""Does the thing once and says how many milliseconds it took."""


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    measure: Measure
    every: int = 1
    """Takes part in each round, or only in each so-manieth: what takes long would crowd out the rest."""


def timed(action: Callable[[], object]) -> float:
    began = time.perf_counter_ns()
    action()
    return (time.perf_counter_ns() - began) / 1e6


def take_turns(contenders: list[Contender], rounds: int, warm_up: int = 3) -> dict[str, Samples]:
    values: dict[str, list[float]] = {one.name: [] for one in contenders}
    for round_ in range(-warm_up, rounds):
        for one in contenders:
            if round_ % one.every == 0:
                milliseconds = one.measure()
                if round_ >= 0:
                    values[one.name].append(milliseconds)
    return {name: Samples(name, "ms", tuple(found)) for name, found in values.items()}
