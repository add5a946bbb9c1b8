"""An exec's output: one log of both streams, small ones in memory, larger ones in segment files.

Positions count the bytes of both streams, so an event's place never depends on how the bytes were cut into
pieces. A segment file is named after the position and the stdout offset of its first byte, and holds records:
a stream number, a length, the bytes. When the log outgrows its limit the oldest segment goes; a reader who
wanted it is told of the gap.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

STDOUT, STDERR = 1, 2
IN_MEMORY = 32 << 10
"""Up to here a log has no file: it waits in the guest, unacknowledged, and ends up in the exec's record."""
MOST_READ = 256 << 10
_JOINED = 4 << 10
_HEADER = struct.Struct("<BI")

StreamName = Literal["stdout", "stderr"]
NAMES: dict[int, StreamName] = {STDOUT: "stdout", STDERR: "stderr"}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of one stream."""

    position: int
    stream: StreamName
    offset: int
    data: bytes

    @property
    def seq(self) -> int:
        """The position after it. To go on behind this chunk, ask for what comes after its seq."""
        return self.position + len(self.data)


@dataclass(frozen=True, slots=True)
class Gap:
    """Output that retention has dropped."""

    start: int
    end: int


Piece = tuple[int, bytes]


@dataclass(slots=True)
class _Segment:
    path: Path
    position: int
    stdout: int
    size: int = 0
    """Bytes of output in it, without headers."""
    file_size: int = 0


class OutputLog:
    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.end = 0
        self.stdout = 0
        self.limit = limit
        self._segment_size = max(limit // 16, 64 << 10)
        self._memory: list[Piece] | None = []
        self._segments: list[_Segment] = []
        self._fd = -1

    @property
    def stderr(self) -> int:
        return self.end - self.stdout

    @property
    def start(self) -> int:
        """The first position that is still kept."""
        return self._segments[0].position if self._segments else 0 if self._memory is not None else self.end

    @property
    def durable(self) -> int:
        """Everything before this survives the server."""
        return 0 if self._memory is not None else self.end

    @property
    def inline(self) -> list[Piece] | None:
        """The whole log, while it is small enough to be kept in the exec's record."""
        return self._memory

    @classmethod
    def of_inline(cls, folder: Path, pieces: list[Piece]) -> OutputLog:
        log = cls(folder, IN_MEMORY)
        for stream, data in pieces:
            log._count(stream, len(data))
        log._memory = pieces
        return log

    @classmethod
    def recovered(cls, folder: Path, limit: int) -> OutputLog:
        """The log as its files have it. What a crash left half-written is cut off: the guest still has it."""
        log = cls(folder, limit)
        names = sorted(folder.glob("*-*.seg")) if folder.is_dir() else []
        for path in names:
            position, stdout = (int(part) for part in path.stem.split("-"))
            segment = _Segment(path, position, stdout)
            if log._segments and position != log.end:
                path.unlink()
                continue
            log._memory, log.end, log.stdout = None, position, stdout
            log._measure(segment)
            log._segments.append(segment)
        return log

    def _measure(self, segment: _Segment) -> None:
        good = 0
        with segment.path.open("rb") as file:
            whole = os.fstat(file.fileno()).st_size
            while len(header := file.read(_HEADER.size)) == _HEADER.size:
                stream, length = _HEADER.unpack(header)
                if stream not in NAMES or good + _HEADER.size + length > whole:
                    break
                file.seek(length, os.SEEK_CUR)
                good += _HEADER.size + length
                segment.size += length
                self._count(stream, length)
        if good < whole:
            os.truncate(segment.path, good)
        segment.file_size = good

    def _count(self, stream: int, length: int) -> None:
        self.end += length
        if stream == STDOUT:
            self.stdout += length

    def append(self, stream: int, data: bytes) -> None:
        """Add bytes. An OSError means that none of them were added."""
        if self._memory is not None:
            if self.end + len(data) <= IN_MEMORY:
                self._remember(self._memory, stream, data)
                self._count(stream, len(data))
                return
            self._spill()
        self._write(stream, data)

    @staticmethod
    def _remember(memory: list[Piece], stream: int, data: bytes) -> None:
        """Join small pieces: a guest may send single bytes, and each piece has a price of its own."""
        if memory and memory[-1][0] == stream and len(memory[-1][1]) + len(data) <= _JOINED:
            memory[-1] = (stream, memory[-1][1] + data)
        else:
            memory.append((stream, data))

    def rewind(self) -> None:
        """Back to what is durable: the guest gives the rest again, byte for byte."""
        if self._memory is not None:
            self._memory, self.end, self.stdout = [], 0, 0

    def _spill(self) -> None:
        """Move from memory to files."""
        assert self._memory is not None
        pieces, end, stdout = self._memory, self.end, self.stdout
        self._memory, self.end, self.stdout = None, 0, 0
        try:
            for stream, data in pieces:
                self._write(stream, data)
        except OSError:
            self.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            self._segments = []
            self._memory, self.end, self.stdout = pieces, end, stdout
            raise

    def _write(self, stream: int, data: bytes) -> None:
        if self._fd < 0 or self._segments[-1].size >= self._segment_size:
            self._open_segment()
        segment = self._segments[-1]
        header = _HEADER.pack(stream, len(data))
        wanted = len(header) + len(data)
        try:
            if os.writev(self._fd, (header, data)) != wanted:
                raise OSError(28, "No space left on device")
        except OSError:
            os.ftruncate(self._fd, segment.file_size)
            os.lseek(self._fd, segment.file_size, os.SEEK_SET)
            raise
        segment.file_size += wanted
        segment.size += len(data)
        self._count(stream, len(data))
        if self.end - self._segments[0].position > self.limit and len(self._segments) > 1:
            self._segments.pop(0).path.unlink(missing_ok=True)

    def _open_segment(self) -> None:
        self.close()
        if self._segments and self._segments[-1].size < self._segment_size:
            segment = self._segments[-1]
            self._fd = os.open(segment.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{self.end:020d}-{self.stdout:020d}.seg"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._segments.append(_Segment(path, self.end, self.stdout))

    def close(self) -> None:
        """Give the descriptor back; reading still works, and appending opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def segment_at(self, position: int) -> _Segment | None:
        """The segment that holds a position, or the first one after it."""
        for segment in self._segments:
            if position < segment.position + segment.size or position < segment.position:
                return segment
        return None


class LogReader:
    """Reads a log from a position on, at its own pace, while the log grows."""

    def __init__(self, log: OutputLog, position: int) -> None:
        self.position = position
        self._log = log
        self._fd = -1
        self._file: Path | None = None
        self._next = 0
        self._at = (0, 0)
        """Position and stdout offset of the next record in the file."""

    def read(self) -> list[Chunk | Gap]:
        """What comes next, about MOST_READ bytes of it; empty when the reader has all there is."""
        if self.position >= self._log.end:
            return []
        if self._log.inline is not None:
            return list(self._from_memory(self._log.inline))
        if self.position < self._log.start:
            gap = Gap(self.position, self._log.start)
            self.position = gap.end
            return [gap]
        while self.position < self._log.end:
            # A position deep in a segment: what comes before it is read and passed over.
            if pieces := self._from_file():
                return pieces
        return []

    def _from_memory(self, pieces: list[Piece]) -> Iterator[Chunk]:
        position, stdout = 0, 0
        for stream, data in pieces:
            yield from self._cut(stream, data, position, stdout)
            position += len(data)
            stdout += len(data) if stream == STDOUT else 0

    def _cut(self, stream: int, data: bytes, position: int, stdout: int) -> Iterator[Chunk]:
        skip = self.position - position
        if skip < len(data):
            offset = stdout if stream == STDOUT else position - stdout
            if skip > 0:
                data, offset = data[skip:], offset + skip
            yield Chunk(self.position, NAMES[stream], offset, data)
            self.position += len(data)

    def _from_file(self) -> list[Chunk | Gap]:
        segment = self._log.segment_at(self.position)
        assert segment is not None
        if self._file != segment.path:
            self.close()
            self._fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
            self._file, self._next, self._at = segment.path, 0, (segment.position, segment.stdout)
        room = segment.file_size - self._next
        data = os.pread(self._fd, min(room, MOST_READ), self._next)
        if len(data) >= _HEADER.size:
            first = _HEADER.size + _HEADER.unpack_from(data)[1]
            if first > len(data):
                data += os.pread(self._fd, first - len(data), self._next + len(data))
        return list(self._records(data))

    def _records(self, data: bytes) -> Iterator[Chunk]:
        used, size = 0, len(data)
        while size - used >= _HEADER.size:
            stream, length = _HEADER.unpack_from(data, used)
            body = used + _HEADER.size
            if body + length > size:
                break
            position, stdout = self._at
            yield from self._cut(stream, data[body : body + length], position, stdout)
            used = body + length
            self._next += _HEADER.size + length
            self._at = (position + length, stdout + length if stream == STDOUT else stdout)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd, self._file = -1, None

    def __del__(self) -> None:
        self.close()
