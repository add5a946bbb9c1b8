"""Sizes and durations as people write them: "512MiB", "4g", "1.5G"; "30s", "15m", "1h30m"."""

from __future__ import annotations

import math
import re

from paddock.errors import Invalid

# A sandbox's memory is what people mean by "4g", so every unit is binary, with or without the "i".
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?|\.\d+)\s*(?P<unit>[kmgtp]?)(?:i?b)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_MAX_SIZE = 2**63 - 1

_PART = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|s|m|h|d)?", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_size(value: str | int | float) -> int:
    """Bytes. A bare number is bytes already."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise Invalid(f"{value!r} is not a size", hint="write a size like 512MiB, 4g or 1.5G")
        size = float(match["number"]) * 1024 ** _POWERS[match["unit"].lower()]
    elif isinstance(value, bool):
        raise Invalid(f"{value!r} is not a size", hint="write a size like 512MiB, 4g or 1.5G")
    else:
        size = value
    if not math.isfinite(size) or not 0 <= size <= _MAX_SIZE:
        raise Invalid(f"{value!r} is out of range for a size", hint="a size is between 0 and 8 EiB")
    return int(size)


def parse_duration(value: str | int | float) -> float:
    """Seconds. A bare number is seconds already."""
    if isinstance(value, str):
        seconds = _sum_of_parts(value)
    elif isinstance(value, bool):
        raise _not_a_duration(value)
    else:
        seconds = float(value)
    if not math.isfinite(seconds) or seconds < 0:
        raise Invalid(f"{value!r} is out of range for a duration", hint="a duration is zero or more")
    return seconds


def _sum_of_parts(text: str) -> float:
    compact = text.replace(" ", "")
    parts = list(_PART.finditer(compact))
    if not parts or "".join(part.group() for part in parts) != compact:
        raise _not_a_duration(text)
    if len(parts) > 1 and any(part["unit"] is None for part in parts):
        raise _not_a_duration(text)
    return sum(float(part["number"]) * _SECONDS[(part["unit"] or "s").lower()] for part in parts)


def _not_a_duration(value: object) -> Invalid:
    return Invalid(f"{value!r} is not a duration", hint="write a duration like 30s, 15m or 1h30m")


def format_size(size: int) -> str:
    """The shortest exact-enough form for people: 1536 is "1.5KiB"."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            return f"{amount:.4g}{unit}"
        amount /= 1024
    return f"{amount:.4g}PiB"
