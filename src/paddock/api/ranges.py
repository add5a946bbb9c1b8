"""The Range header, as far as files need it: one range of bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paddock.errors import PaddockError
from paddock.sandboxes.model import Entry

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class NotSatisfiable(PaddockError):
    status = 416
    default_reason = "range"


@dataclass(frozen=True, slots=True)
class Range:
    start: int
    end: int
    """One behind the last byte."""
    size: int

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def header(self) -> str:
        return f"bytes {self.start}-{self.end - 1}/{self.size}"


def etag_of(entry: Entry) -> str:
    return f'"{entry.mtime:x}-{entry.size:x}"'


def parse_range(header: str, size: int) -> Range | None:
    """None: not a range that we serve, so the whole file is the right answer."""
    match = _RANGE.fullmatch(header.replace(" ", ""))
    if match is None or match.group(1) == match.group(2) == "":
        return None
    first, last = match.groups()
    if not first:
        wanted = int(last)
        start, end = max(0, size - wanted), size
        if wanted == 0:
            raise _beyond(size)
    else:
        start = int(first)
        end = min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= size:
        raise _beyond(size)
    return Range(start, end, size)


def _beyond(size: int) -> NotSatisfiable:
    return NotSatisfiable(f"the file has {size} bytes, and the range begins behind them")
