"""Our own stdin, stdout and stderr, without ever waiting for them: what is slow is waited for in one loop."""

from __future__ import annotations

import os
import select
import stat
from collections import deque
from typing import Literal, Protocol

StreamName = Literal["stdout", "stderr"]

READ = 64 << 10
# A pipe that is writable takes this much without blocking, and POSIX promises no more.
PIPE_WRITE = select.PIPE_BUF
FILE_WRITE = 256 << 10
WRITES_PER_TURN = 64


class Sink(Protocol):
    """Where output goes."""

    pending: int
    """Bytes not yet written."""

    def put(self, stream: StreamName, data: bytes) -> None: ...

    def waiting_for(self) -> int | None:
        """The descriptor to wait for until there is room, if any."""

    def write_some(self) -> None:
        """Write what can be written now. OSError as the descriptor gives it."""


class Descriptors:
    """Writes both streams in the order they came, since they often end in one place."""

    def __init__(self, stdout: int = 1, stderr: int = 2, *, only: StreamName | None = None) -> None:
        self._fds: dict[StreamName, int] = {"stdout": stdout, "stderr": stderr}
        self._only = only
        self._chunks = {fd: _chunk_size(fd) for fd in (stdout, stderr)}
        self._queue: deque[tuple[int, memoryview]] = deque()
        self.pending = 0

    def put(self, stream: StreamName, data: bytes) -> None:
        if data and self._only in (None, stream):
            self._queue.append((self._fds[stream], memoryview(data)))
            self.pending += len(data)

    def waiting_for(self) -> int | None:
        return self._queue[0][0] if self._queue else None

    def write_some(self) -> None:
        for _ in range(WRITES_PER_TURN):
            if not self._queue:
                return
            fd, data = self._queue[0]
            if not _is_ready(fd):
                return
            try:
                written = os.write(fd, data[: self._chunks[fd]])
            except BlockingIOError:
                return
            self.pending -= written
            if written == len(data):
                self._queue.popleft()
            else:
                self._queue[0] = (fd, data[written:])


class Collector:
    """Keeps output in memory, for one answer at the end."""

    def __init__(self) -> None:
        self.pending = 0
        self._parts: dict[StreamName, list[bytes]] = {"stdout": [], "stderr": []}

    def put(self, stream: StreamName, data: bytes) -> None:
        self._parts[stream].append(data)

    def waiting_for(self) -> int | None:
        return None

    def write_some(self) -> None:
        return

    def collected(self, stream: StreamName) -> bytes:
        return b"".join(self._parts[stream])


class Input:
    """Stdin, and the last of what was sent of it: after a lost connection some has to be sent again."""

    KEPT = 4 << 20

    def __init__(self, fd: int = 0) -> None:
        self.fd = fd
        self.ended = False
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._read_bytes = 0

    def read(self) -> bytes:
        """What there is; sets `ended` at its end."""
        try:
            data = os.read(self.fd, READ)
        except BlockingIOError:
            return b""
        except OSError:
            # A terminal that was hung up, or a folder: there is no more to come.
            data = b""
        if not data:
            self.ended = True
        self._keep(data)
        return data

    def _keep(self, data: bytes) -> None:
        self._read_bytes += len(data)
        self._kept.append(data)
        self._kept_bytes += len(data)
        while self._kept_bytes - len(self._kept[0]) >= self.KEPT:
            self._kept_bytes -= len(self._kept.popleft())

    def since(self, position: int) -> bytes | None:
        """Everything read behind `position`; None when that is no longer here."""
        first = self._read_bytes - self._kept_bytes
        if position < first:
            return None
        return b"".join(self._kept)[position - first :]


def _chunk_size(fd: int) -> int:
    try:
        return FILE_WRITE if stat.S_ISREG(os.fstat(fd).st_mode) else PIPE_WRITE
    except OSError:
        return PIPE_WRITE


def _is_ready(fd: int) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    return bool(poller.poll(0))
