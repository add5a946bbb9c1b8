"""An exec's output as events: a start, the output in order, gaps where retention dropped some, an exit.

`seq` is the position behind an event in the exec's log, so a client that comes back with its last seq misses
nothing and gets nothing twice.
"""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

from paddock.api.services import Services
from paddock.errors import PaddockError
from paddock.sandboxes.execlog import Chunk, Gap
from paddock.sandboxes.model import Exec

Encoding = Literal["text", "base64"]
StreamName = Literal["stdout", "stderr"]
STREAMS: tuple[StreamName, ...] = ("stdout", "stderr")

LOOK_BACK = 64 << 10
"""How far back the first bytes of an unfinished character may lie, with the other stream between."""
Event = dict[str, Any]


class Texts:
    """Bytes of two streams as text that never splits a character: its first bytes wait for the rest."""

    def __init__(self) -> None:
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in STREAMS}
        self._ends = dict.fromkeys(STREAMS, 0)

    def feed(self, stream: StreamName, offset: int, data: bytes) -> tuple[int, str]:
        """The text that is complete now, and the offset of its first byte."""
        decoder = self._decoders[stream]
        start = offset - len(decoder.getstate()[0])
        self._ends[stream] = offset + len(data)
        return start, decoder.decode(data)

    def rest(self, stream: StreamName) -> tuple[int, str]:
        """What waits for bytes that will never come."""
        decoder = self._decoders[stream]
        start = self._ends[stream] - len(decoder.getstate()[0])
        text = decoder.decode(b"", final=True)
        decoder.reset()
        return start, text


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which output, and in which form."""

    ref: str
    exec_id: str
    after: int = 0
    follow: bool = True
    encoding: Encoding = "text"
    stream: StreamName | None = None


def end_of(exec_: Exec) -> int:
    return exec_.stdout_bytes + exec_.stderr_bytes


def start_event(exec_: Exec) -> Event:
    return {
        "seq": 0,
        "type": "start",
        "exec_id": exec_.id,
        "sandbox_id": exec_.sandbox_id,
        "time": exec_.started_at or exec_.created_at,
    }


def exit_event(exec_: Exec) -> Event:
    event: Event = {
        "seq": end_of(exec_) + 1,
        "type": "exit",
        "exit_code": exec_.exit_code,
        "signal": exec_.signal,
        "state": exec_.state.value,
        "time": exec_.finished_at,
    }
    if exec_.reason:
        event |= {"reason": exec_.reason, "error": exec_.error}
    return event


def gap_event(gap: Gap) -> Event:
    return {"seq": gap.end, "type": "gap", "start": gap.start, "end": gap.end}


async def raw_output(services: Services, wanted: Wanted) -> AsyncIterator[bytes]:
    """The bytes alone."""
    async for piece in _pieces(services, wanted):
        if isinstance(piece, Chunk) and wanted.stream in (None, piece.stream):
            yield piece.data


async def output_events(services: Services, wanted: Wanted) -> AsyncIterator[Event]:
    """Every event; an error on the way becomes the last one."""
    try:
        async for event in _events(services, wanted):
            yield event
    except PaddockError as error:
        yield {"type": "error", **error.as_dict()}


async def _events(services: Services, wanted: Wanted) -> AsyncIterator[Event]:
    exec_ = await services.sandboxes.get_exec(wanted.ref, wanted.exec_id)
    if wanted.after == 0:
        yield start_event(exec_)
    texts = Texts() if wanted.encoding == "text" else None
    if texts is not None and wanted.after > 0:
        await _prime(services, wanted, texts)
    seq = wanted.after
    async for piece in _pieces(services, wanted):
        if isinstance(piece, Gap):
            for rest in _rests(texts, wanted, piece.start):
                yield rest
            yield gap_event(piece)
            seq = piece.end
            continue
        seq = piece.seq
        if wanted.stream in (None, piece.stream) and (event := _output(piece, texts)) is not None:
            yield event
    exec_ = await services.sandboxes.get_exec(wanted.ref, wanted.exec_id)
    if exec_.state.ended and seq <= end_of(exec_):
        for rest in _rests(texts, wanted, end_of(exec_)):
            yield rest
        yield exit_event(exec_)


async def _pieces(services: Services, wanted: Wanted) -> AsyncIterator[Chunk | Gap]:
    pieces = services.sandboxes.output(wanted.ref, wanted.exec_id, after=wanted.after, follow=wanted.follow)
    async for piece in pieces:
        yield piece


async def _prime(services: Services, wanted: Wanted, texts: Texts) -> None:
    """Bring the decoders to where they were when the client left."""
    place = max(0, wanted.after - LOOK_BACK)
    async for piece in services.sandboxes.output(wanted.ref, wanted.exec_id, after=place, follow=False):
        if isinstance(piece, Gap):
            continue
        known = piece.data[: max(0, wanted.after - piece.position)]
        texts.feed(piece.stream, piece.offset, known)
        if piece.seq >= wanted.after:
            break


def _output(chunk: Chunk, texts: Texts | None) -> Event | None:
    event: Event = {"seq": chunk.seq, "type": "output", "stream": chunk.stream}
    if texts is None:
        return event | {"offset": chunk.offset, "data_base64": base64.b64encode(chunk.data).decode()}
    offset, text = texts.feed(chunk.stream, chunk.offset, chunk.data)
    return event | {"offset": offset, "data": text} if text else None


def _rests(texts: Texts | None, wanted: Wanted, seq: int) -> list[Event]:
    events: list[Event] = []
    for stream in STREAMS if texts is not None else ():
        assert texts is not None
        offset, text = texts.rest(stream)
        if text and wanted.stream in (None, stream):
            events.append({"seq": seq, "type": "output", "stream": stream, "offset": offset, "data": text})
    return events


def _dumps(event: Event) -> str:
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False)


async def as_lines(events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    async for event in events:
        yield _dumps(event).encode() + b"\n"


async def as_sse(events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    async for event in events:
        yield sse_frame(event["type"], event, event.get("seq"))


def sse_frame(kind: str, data: Event, number: int | None = None) -> bytes:
    identity = f"id: {number}\n" if number is not None else ""
    return f"{identity}event: {kind}\ndata: {_dumps(data)}\n\n".encode()
