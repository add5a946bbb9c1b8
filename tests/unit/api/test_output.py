"""Output as events: whole characters, and exact places to go on from."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.api.output import Texts, Wanted, as_lines, as_sse, output_events, raw_output, sse_frame
from paddock.api.services import Services
from paddock.errors import NotFound, PaddockError
from paddock.sandboxes.execlog import Chunk, Gap
from paddock.sandboxes.model import Exec, ExecState

Piece = tuple[str, bytes]


class Recorded:
    """The core's side of one finished exec: a stub of two calls."""

    def __init__(self, pieces: list[Piece], dropped: int = 0, error: PaddockError | None = None) -> None:
        self.chunks: list[Chunk] = []
        offsets = {"stdout": 0, "stderr": 0}
        position = 0
        for stream, data in pieces:
            self.chunks.append(Chunk(position, stream, offsets[stream], data))  # type: ignore[arg-type]
            offsets[stream] += len(data)
            position += len(data)
        self.end = position
        self.dropped = dropped
        self.error = error
        self.exec = Exec(
            id="exec-0001",
            sandbox_id="box",
            command=["x"],
            cwd="/",
            state=ExecState.COMPLETED,
            exit_code=0,
            created_at=1.0,
            stdout_bytes=offsets["stdout"],
            stderr_bytes=offsets["stderr"],
        )

    async def get_exec(self, ref: str, exec_id: str) -> Exec:
        return self.exec

    async def output(
        self, ref: str, exec_id: str, *, after: int = 0, follow: bool = True
    ) -> AsyncIterator[Chunk | Gap]:
        if after < self.dropped:
            yield Gap(after, self.dropped)
            after = self.dropped
        for chunk in self.chunks:
            if chunk.seq > after:
                cut = max(0, after - chunk.position)
                yield Chunk(chunk.position + cut, chunk.stream, chunk.offset + cut, chunk.data[cut:])
        if self.error is not None:
            raise self.error


def services_of(recorded: Recorded) -> Services:
    return cast(Services, SimpleNamespace(sandboxes=recorded))


async def events_of(recorded: Recorded, **wanted: Any) -> list[dict[str, Any]]:
    return [
        event async for event in output_events(services_of(recorded), Wanted("box", "exec-0001", **wanted))
    ]


def texts_of(events: list[dict[str, Any]]) -> dict[str, str]:
    texts = {"stdout": "", "stderr": ""}
    for event in events:
        if event["type"] == "output":
            texts[event["stream"]] += event["data"]
    return texts


async def test_a_character_cut_in_two_waits_for_its_end() -> None:
    recorded = Recorded(
        [("stdout", b"a\xc3"), ("stderr", b"\xe2\x82"), ("stdout", b"\xa9b"), ("stderr", b"\xac")]
    )
    events = await events_of(recorded)
    assert [(e["seq"], e.get("stream"), e.get("offset"), e.get("data")) for e in events] == [
        (0, None, None, None),
        (2, "stdout", 0, "a"),
        (6, "stdout", 1, "éb"),
        (7, "stderr", 0, "€"),
        (8, None, None, None),
    ]
    assert events[-1]["exit_code"] == 0


async def test_bytes_that_are_no_text_become_replacement_characters() -> None:
    events = await events_of(Recorded([("stdout", b"\xff"), ("stdout", b"ok\xf0\x9f")]))
    assert texts_of(events)["stdout"] == "\ufffdok\ufffd"


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    text=st.text(max_size=20),
    other=st.binary(max_size=20),
    cuts=st.lists(st.integers(0, 80), max_size=8),
    stop=st.integers(0, 20),
)
async def test_wherever_it_is_cut_and_resumed_the_text_is_the_same(
    text: str, other: bytes, cuts: list[int], stop: int
) -> None:
    data = text.encode()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces: list[Piece] = []
    for index, (start, end) in enumerate(itertools.pairwise(places)):
        pieces.append(("stdout", data[start:end]))
        if index < len(other):
            pieces.append(("stderr", other[index : index + 1]))
    recorded = Recorded(pieces)
    events = await events_of(recorded)
    assert texts_of(events)["stdout"] == text
    first = events[: stop + 1]
    after = first[-1]["seq"]
    rest = [event for event in await events_of(recorded, after=after) if event["type"] != "start"]
    assert texts_of(first + rest)["stdout"] == text


async def test_a_gap_is_told_and_what_waited_is_given_up() -> None:
    recorded = Recorded([("stdout", b"dropped"), ("stdout", b"kept")], dropped=7)
    events = await events_of(recorded)
    assert [(e["type"], e["seq"]) for e in events] == [("start", 0), ("gap", 7), ("output", 11), ("exit", 12)]
    assert (events[1]["start"], events[1]["end"]) == (0, 7)


async def test_after_the_exit_there_is_nothing() -> None:
    recorded = Recorded([("stdout", b"abc")])
    assert [e["type"] for e in await events_of(recorded, after=3)] == ["exit"]
    assert await events_of(recorded, after=4) == []


async def test_one_stream_alone_keeps_its_places() -> None:
    recorded = Recorded([("stdout", b"out"), ("stderr", b"err"), ("stdout", b"more")])
    events = await events_of(recorded, stream="stderr", encoding="base64")
    assert [(e["type"], e["seq"]) for e in events] == [("start", 0), ("output", 6), ("exit", 11)]
    raw = [
        part async for part in raw_output(services_of(recorded), Wanted("box", "exec-0001", stream="stdout"))
    ]
    assert raw == [b"out", b"more"]


async def test_a_running_exec_has_no_exit() -> None:
    recorded = Recorded([("stdout", b"abc")])
    recorded.exec.state = ExecState.RUNNING
    assert [e["type"] for e in await events_of(recorded, follow=False)] == ["start", "output"]


async def test_an_error_on_the_way_is_the_last_event() -> None:
    recorded = Recorded([("stdout", b"abc")], error=NotFound("gone", reason="sandbox_not_found"))
    events = await events_of(recorded)
    assert events[-1] == {"type": "error", "error": "gone", "reason": "sandbox_not_found"}


async def test_lines_and_frames() -> None:
    async def one() -> AsyncIterator[dict[str, Any]]:
        yield {"seq": 3, "type": "output", "data": "é\n"}

    assert [line async for line in as_lines(one())] == ['{"seq":3,"type":"output","data":"é\\n"}\n'.encode()]
    assert [frame async for frame in as_sse(one())] == [
        'id: 3\nevent: output\ndata: {"seq":3,"type":"output","data":"é\\n"}\n\n'.encode()
    ]
    assert sse_frame("error", {}) == b"event: error\ndata: {}\n\n"


@pytest.mark.parametrize("data", [b"", b"plain", "ünïcödé€😀".encode(), b"\x80\xff"])
def test_texts_byte_by_byte_are_the_same_as_at_once(data: bytes) -> None:
    texts = Texts()
    parts = [texts.feed("stdout", index, data[index : index + 1])[1] for index in range(len(data))]
    parts.append(texts.rest("stdout")[1])
    assert "".join(parts) == data.decode(errors="replace")
