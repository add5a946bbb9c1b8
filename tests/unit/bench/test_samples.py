from __future__ import annotations

import pytest

from bench.samples import Samples, percentile


def test_percentiles_lie_between_the_nearest_samples() -> None:
    values = [40.0, 10.0, 30.0, 20.0]
    assert percentile(values, 0.0) == 10.0
    assert percentile(values, 0.5) == 25.0
    assert percentile(values, 1.0) == 40.0
    assert percentile(values, 0.9) == pytest.approx(37.0)


def test_one_sample_is_every_percentile() -> None:
    one = Samples("one", "ms", (7.0,))
    assert (one.median, one.p90, one.p99) == (7.0, 7.0, 7.0)


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        percentile([], 0.5)


def test_an_outlier_moves_the_tail_and_not_the_median() -> None:
    samples = Samples("many", "ms", (*(1.0,) * 99, 500.0))
    assert samples.median == 1.0
    assert samples.p90 == 1.0
    assert samples.p99 > 1.0


def test_the_tail_of_a_rate_is_its_slow_end() -> None:
    rates = Samples("rates", "/s", tuple(float(value) for value in range(1, 102)), more_is_better=True)
    assert rates.median == 51.0
    assert rates.p90 == pytest.approx(11.0)
    assert rates.p99 == pytest.approx(2.0)
