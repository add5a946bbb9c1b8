from __future__ import annotations

import pytest

from paddock.auth import RateLimiter
from paddock.errors import RateLimited


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_burst_then_a_steady_rate(clock: Clock) -> None:
    limiter = RateLimiter(8, 5, clock=clock)
    assert [limiter.take("a") for _ in range(5)] == [0.0] * 5
    assert limiter.take("a") == 0.125
    clock.now += 0.125
    assert limiter.take("a") == 0.0
    assert limiter.take("a") > 0
    clock.now += 1000
    assert [limiter.take("a") for _ in range(5)] == [0.0] * 5
    assert limiter.take("a") > 0


def test_callers_do_not_share(clock: Clock) -> None:
    limiter = RateLimiter(1, 1, clock=clock)
    limiter.check("a")
    limiter.check("b")
    with pytest.raises(RateLimited) as caught:
        limiter.check("a")
    assert "1000 ms" in (caught.value.hint or "")


def test_memory_is_bounded_and_the_busy_are_remembered(clock: Clock) -> None:
    limiter = RateLimiter(1, 1, clock=clock, max_keys=10)
    limiter.check("busy")
    for n in range(1000):
        assert limiter.take("busy") > 0
        limiter.check(f"k{n}")
    assert len(limiter) == 10
