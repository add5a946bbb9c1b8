"""The Range header."""

from __future__ import annotations

import pytest

from paddock.api.ranges import NotSatisfiable, Range, parse_range


@pytest.mark.parametrize(
    ("header", "start", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=2-", 2, 10),
        ("bytes=-4", 6, 10),
        ("bytes=-99", 0, 10),
        ("bytes=3-99", 3, 10),
        ("bytes= 1 - 2", 1, 3),
    ],
)
def test_one_range_is_served(header: str, start: int, end: int) -> None:
    found = parse_range(header, 10)
    assert found == Range(start, end, 10)
    assert found.header == f"bytes {start}-{end - 1}/10"
    assert found.length == end - start


@pytest.mark.parametrize(
    "header",
    ["", "bytes=", "bytes=-", "bytes=1-2,4-5", "items=0-1", "bytes=5-2", "bytes=a-b", "bytes=1-" + "9" * 30],
)
def test_anything_else_means_the_whole_file(header: str) -> None:
    assert parse_range(header, 10) is None


@pytest.mark.parametrize(
    ("header", "size"), [("bytes=10-", 10), ("bytes=-0", 10), ("bytes=0-", 0), ("bytes=-5", 0)]
)
def test_behind_the_end_there_is_nothing(header: str, size: int) -> None:
    with pytest.raises(NotSatisfiable) as caught:
        parse_range(header, size)
    assert (caught.value.status, caught.value.reason) == (416, "range")
