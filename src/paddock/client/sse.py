"""Server-sent events: lines in, events out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    id: str | None
    kind: str
    data: str


def parse(lines: Iterable[bytes]) -> Iterator[ServerEvent]:
    """As the standard says: an empty line ends an event, and one cut off by the stream's end is dropped."""
    event_id: str | None = None
    kind = ""
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace")
        if not line:
            if data:
                yield ServerEvent(event_id, kind or "message", "\n".join(data))
            kind, data = "", []
            continue
        if line.startswith(":"):
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            kind = value
        elif field == "id" and "\0" not in value:
            event_id = value
