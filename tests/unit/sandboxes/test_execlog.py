"""The log is compared with the simplest thing that could be one: a list of bytes with their streams."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.sandboxes.execlog import IN_MEMORY, STDERR, STDOUT, Chunk, Gap, LogReader, OutputLog

Pieces = list[tuple[int, bytes]]
streams = st.sampled_from([STDOUT, STDERR])
sizes = st.one_of(
    st.integers(1, 50), st.sampled_from([1000, IN_MEMORY - 1, IN_MEMORY, IN_MEMORY + 1, 70_000])
)
SMALLEST = 64 << 10


@st.composite
def outputs(draw: st.DrawFn) -> Pieces:
    made, at = [], 0
    for stream, size in draw(st.lists(st.tuples(streams, sizes), max_size=25)):
        made.append((stream, bytes((at + n) % 251 for n in range(size))))
        at += size
    return made


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name) / "log"


def flat(pieces: Pieces) -> list[tuple[int, int, int]]:
    """For each position: stream, offset in that stream, byte."""
    found, offsets = [], {STDOUT: 0, STDERR: 0}
    for stream, data in pieces:
        for byte in data:
            found.append((stream, offsets[stream], byte))
            offsets[stream] += 1
    return found


def read(reader: LogReader) -> list[Chunk | Gap]:
    found = []
    while pieces := reader.read():
        found += pieces
    return found


def check(found: list[Chunk | Gap], whole: list[tuple[int, int, int]], after: int) -> int:
    """What was read is exactly what was written, from `after` on. Returns how much was dropped."""
    at, dropped = after, 0
    for piece in found:
        if isinstance(piece, Gap):
            assert piece.start == at < piece.end
            dropped, at = dropped + piece.end - at, piece.end
            continue
        assert piece.position == at
        stream = STDOUT if piece.stream == "stdout" else STDERR
        expected = [(stream, piece.offset + n, byte) for n, byte in enumerate(piece.data)]
        assert expected
        assert whole[at : at + len(piece.data)] == expected
        at = piece.seq
    assert at == max(after, len(whole))
    return dropped


def positions(size: int) -> list[int]:
    edges = {
        0,
        1,
        size // 3,
        size // 2,
        size - 1,
        size,
        size + 5,
        IN_MEMORY - 1,
        IN_MEMORY,
        SMALLEST,
        SMALLEST + 1,
    }
    return sorted(position for position in edges if position >= 0)


@given(outputs())
@settings(max_examples=25, deadline=None)
def test_readers_from_every_position(pieces: Pieces) -> None:
    whole = flat(pieces)
    with folder() as path:
        log = OutputLog(path, 1 << 30)
        for stream, data in pieces:
            log.append(stream, data)
        assert log.end == len(whole)
        assert log.stdout == sum(len(data) for stream, data in pieces if stream == STDOUT)
        assert log.stderr == log.end - log.stdout
        assert (log.inline is not None) == (log.end <= IN_MEMORY)
        log.close()
        for after in positions(log.end):
            assert check(read(LogReader(log, after)), whole, after) == 0


@given(outputs(), st.integers(SMALLEST, 4 * SMALLEST))
@settings(max_examples=25, deadline=None)
def test_what_is_too_much_is_dropped_from_the_front(pieces: Pieces, limit: int) -> None:
    whole = flat(pieces)
    with folder() as path:
        log = OutputLog(path, limit)
        for stream, data in pieces:
            log.append(stream, data)
            assert log.end - log.start <= limit + SMALLEST + 70_000
        log.close()
        if log.end <= limit:
            assert log.start == 0
        for after in positions(log.end):
            dropped = check(read(LogReader(log, after)), whole, after)
            assert dropped == max(0, min(log.start, log.end) - after)
        kept = sum(file.stat().st_size for file in path.glob("*")) if path.exists() else 0
        assert kept <= limit + SMALLEST + 80_000


@given(outputs(), st.integers(SMALLEST, 4 * SMALLEST))
@settings(max_examples=30, deadline=None)
def test_a_reader_while_it_grows(pieces: Pieces, limit: int) -> None:
    whole = flat(pieces)
    with folder() as path:
        log = OutputLog(path, limit)
        reader, found = LogReader(log, 0), []
        for number, (stream, data) in enumerate(pieces):
            log.append(stream, data)
            if number % 3 != 1:
                found += reader.read()
        found += read(reader)
        log.close()
        reader.close()
        check(found, whole, 0)


@given(outputs())
@settings(max_examples=30, deadline=None)
def test_recovered_and_continued(pieces: Pieces) -> None:
    with folder() as path:
        log = OutputLog(path, 1 << 30)
        for stream, data in pieces:
            log.append(stream, data)
        log.close()
        again = OutputLog.recovered(path, 1 << 30)
        safe = log.durable
        assert (again.end, again.durable) == (safe, safe)
        if safe:
            assert again.stdout == log.stdout
        rest = pieces if not safe else []
        for stream, data in [*rest, (STDERR, b"more")]:
            again.append(stream, data)
        again.close()
        check(read(LogReader(again, 0)), flat([*pieces, (STDERR, b"more")]), 0)


def test_a_crash_at_every_byte_of_the_last_segment(tmp_path: Path) -> None:
    """Whatever was cut off is whole records; what is left is exact, and can be continued."""
    pieces = [(STDOUT, b"a" * (IN_MEMORY + 1)), (STDERR, b"bc"), (STDOUT, b"d"), (STDERR, b"e" * 300)]
    log = OutputLog(tmp_path / "log", 1 << 20)
    for stream, data in pieces:
        log.append(stream, data)
    log.close()
    [segment] = (tmp_path / "log").iterdir()
    whole_file, whole = segment.read_bytes(), flat(pieces)
    ends = [0]
    for _, data in pieces:
        ends.append(ends[-1] + len(data))
    cuts = [*range(20), *range(IN_MEMORY - 5, len(whole_file) + 1)]
    for cut in cuts:
        shutil.rmtree(tmp_path / "log")
        (tmp_path / "log").mkdir()
        segment.write_bytes(whole_file[:cut])
        again = OutputLog.recovered(tmp_path / "log", 1 << 20)
        # Headers have 5 bytes: the last record that is there in full.
        full = max(end for n, end in enumerate(ends) if end + 5 * n <= cut)
        assert again.end == full
        check(read(LogReader(again, 0)), whole[:full], 0)
        again.append(STDERR, b"again")
        again.close()
        again = OutputLog.recovered(tmp_path / "log", 1 << 20)
        assert again.end == full + 5


def test_garbage_at_the_end_is_cut_off(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "log", 1 << 20)
    log.append(STDOUT, b"x" * 40_000)
    log.close()
    [segment] = (tmp_path / "log").iterdir()
    good = segment.read_bytes()
    for garbage in (bytes(4096), b"\x07\x01\x00\x00\x00x", b"\x01\xff\xff\xff\xff", b"\x02"):
        segment.write_bytes(good + garbage)
        assert OutputLog.recovered(tmp_path / "log", 1 << 20).end == 40_000
        assert segment.read_bytes() == good


def test_a_segment_behind_a_hole_is_not_taken(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "log", 1 << 20)
    for _ in range(4):
        log.append(STDOUT, b"x" * 70_000)
    log.close()
    segments = sorted((tmp_path / "log").iterdir())
    assert len(segments) == 4
    segments[1].write_bytes(segments[1].read_bytes()[:1000])
    again = OutputLog.recovered(tmp_path / "log", 1 << 20)
    assert again.end == 70_000
    again.append(STDERR, b"y")
    again.close()
    assert OutputLog.recovered(tmp_path / "log", 1 << 20).end == 70_001


def test_a_full_disk_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, room = os.writev, [10**9]

    def writev(fd: int, parts: tuple[bytes, ...]) -> int:
        data = b"".join(parts)[: room[0]]
        if not data:
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= len(data)
        return real(fd, (data,))

    monkeypatch.setattr(os, "writev", writev)
    log = OutputLog(tmp_path / "log", 1 << 20)
    log.append(STDOUT, b"a" * 30_000)
    room[0] = 100
    with pytest.raises(OSError):
        log.append(STDERR, b"b" * 3000)
    assert (log.end, log.durable, log.inline) == (30_000, 0, [(STDOUT, b"a" * 30_000)])
    assert not (tmp_path / "log").exists()
    room[0] = 40_000
    log.append(STDERR, b"b" * 3000)
    with pytest.raises(OSError):
        log.append(STDERR, b"c" * 10_000)
    assert (log.end, log.durable) == (33_000, 33_000)
    room[0] = 10**9
    log.append(STDERR, b"c" * 10_000)
    log.close()
    pieces = [(STDOUT, b"a" * 30_000), (STDERR, b"b" * 3000), (STDERR, b"c" * 10_000)]
    check(read(LogReader(log, 0)), flat(pieces), 0)
    assert OutputLog.recovered(tmp_path / "log", 1 << 20).end == 43_000


def test_rewind_forgets_only_what_is_not_safe(tmp_path: Path) -> None:
    log = OutputLog(tmp_path / "log", 1 << 20)
    log.append(STDOUT, b"small")
    reader = LogReader(log, 0)
    assert [p.data for p in reader.read() if isinstance(p, Chunk)] == [b"small"]
    log.rewind()
    assert (log.end, log.stdout) == (0, 0)
    assert reader.read() == []
    log.append(STDOUT, b"small and more")
    assert [p.data for p in reader.read() if isinstance(p, Chunk)] == [b" and more"]
    log.append(STDERR, b"x" * IN_MEMORY)
    end = log.end
    log.rewind()
    assert log.end == log.durable == end
    log.close()


def test_a_log_from_a_record(tmp_path: Path) -> None:
    pieces = [(STDERR, b"ab"), (STDOUT, b"cd"), (STDERR, b"e")]
    log = OutputLog.of_inline(tmp_path / "none", pieces)
    for after in range(7):
        check(read(LogReader(log, after)), flat(pieces), after)
    assert not (tmp_path / "none").exists()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="missing ability: /proc")
def test_descriptors_are_given_back(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    log = OutputLog(tmp_path / "log", 1 << 20)
    for _ in range(10):
        log.append(STDOUT, b"x" * 70_000)
    reader = LogReader(log, 0)
    read(reader)
    reader.close()
    log.close()
    assert len(os.listdir("/proc/self/fd")) == before
