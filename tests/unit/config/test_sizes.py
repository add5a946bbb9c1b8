from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.config import format_size, parse_duration, parse_size
from paddock.errors import Invalid


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MiB", 512 << 20),
        ("4g", 4 << 30),
        ("1.5G", 3 << 29),
        ("10", 10),
        ("2 kb", 2048),
        (".5k", 512),
        ("1TiB", 1 << 40),
        (7, 7),
        ("0", 0),
    ],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "g", "4x", "-1", "1e3", "4 g g", "inf", "nan", "1.2.3M", True, -5, "9999999p"]
)
def test_not_sizes(text: str | int) -> None:
    with pytest.raises(Invalid) as caught:
        parse_size(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("15m", 900),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1d", 86400),
        ("45", 45),
        (1.5, 1.5),
        ("1h 5s", 3605),
    ],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "s", "1x", "-3s", "1h30", "1 hour", "inf", "nan", float("nan"), float("inf"), -1, True]
)
def test_not_durations(text: str | float) -> None:
    with pytest.raises(Invalid):
        parse_duration(text)


@given(st.integers(0, 1 << 55))
def test_a_formatted_size_reads_back_nearly_the_same(size: int) -> None:
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.001)
