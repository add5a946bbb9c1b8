"""Moving bytes for `paddock cp`, with a progress bar on a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

from paddock.cli.extract import extract
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from paddock.client import Client
    from paddock.client.transport import Answer

READ = 256 << 10
BLOCK = 512


class Progress:
    """Counts bytes, and draws a bar on stderr where that is a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.done = 0
        self.skipped: list[str] = []
        self._drawn = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, total: int | None) -> None:
        if not self._drawn:
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        self._bar = Bar(BarColumn(), DownloadColumn(), TransferSpeedColumn(), console=console, transient=True)
        self._task = self._bar.add_task("", total=total)
        self._bar.start()

    def advance(self, count: int) -> None:
        self.done += count
        if self._bar is not None:
            self._bar.advance(self._task, count)

    def skip(self, reason: str) -> None:
        self.skipped.append(reason)


def send_file(server: Client, ref: str, path: str, target: str, progress: Progress) -> None:
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        regular = stat.S_ISREG(status.st_mode)
        progress.begin(status.st_size if regular else None)
        mode = f"{status.st_mode & 0o777:04o}" if regular else None
        server.write_file(ref, target, _counted(iter(lambda: file.read(READ), b""), progress), mode=mode)


def read_stdin(progress: Progress) -> Iterator[bytes]:
    progress.begin(None)
    return _counted(iter(lambda: os.read(0, READ), b""), progress)


def write_stdout(chunks: Iterable[bytes], progress: Progress) -> None:
    # No bar: it would be drawn over the output on the same terminal.
    for data in chunks:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(1, rest) :]
        progress.done += len(data)


def _counted(chunks: Iterable[bytes], progress: Progress) -> Iterator[bytes]:
    for data in chunks:
        progress.advance(len(data))
        yield data


def folder_as_tar(path: str, under: str, progress: Progress) -> Iterator[bytes]:
    """The folder as a tar archive, made as it is sent. Its names begin with `under`."""
    progress.begin(None)
    if under:
        yield _header(under, os.stat(path))
    yield from _contents(path, under, progress)
    yield bytes(2 * BLOCK)


def _contents(folder: str, under: str, progress: Progress) -> Iterator[bytes]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        name = f"{under}/{entry.name}" if under else entry.name
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            yield _header(name, status)
            yield from _contents(entry.path, name, progress)
        elif stat.S_ISLNK(status.st_mode):
            yield _header(name, status, link=os.readlink(entry.path))
        elif stat.S_ISREG(status.st_mode):
            yield from _file(entry.path, name, progress)
        else:
            progress.skip(f"{entry.path}: not a file, a folder or a link")


def _file(path: str, name: str, progress: Progress) -> Iterator[bytes]:
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        yield _header(name, status)
        left = status.st_size
        while left:
            data = file.read(min(READ, left))
            if not data:
                raise PaddockError(f"{path} became shorter while it was read", reason="file_changed")
            left -= len(data)
            progress.advance(len(data))
            yield data
    yield bytes(-status.st_size % BLOCK)


def _header(name: str, status: os.stat_result, *, link: str | None = None) -> bytes:
    info = tarfile.TarInfo(name)
    info.mode = stat.S_IMODE(status.st_mode) & 0o777
    info.mtime = max(0, int(status.st_mtime))
    if link is not None:
        info.type, info.linkname = tarfile.SYMTYPE, link
    elif stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
    else:
        info.size = status.st_size
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def fetch_file(server: Client, ref: str, path: str, target: str, mode: str, progress: Progress) -> None:
    """Write a file here: the whole of it or nothing, and never through a link."""
    with server.read_file(ref, path) as answer:
        length = answer.header("Content-Length")
        progress.begin(int(length) if length else None)
        if os.path.exists(target) and not os.path.isfile(target):
            with open(target, "wb") as device:
                _save(answer, device, progress)
            return
        _replace(answer, target, mode, progress)


def _replace(answer: Answer, target: str, mode: str, progress: Progress) -> None:
    folder = os.path.dirname(os.path.abspath(target))
    fd, temporary = tempfile.mkstemp(prefix=".paddock-", dir=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            _save(answer, file, progress)
            umask = os.umask(0)
            os.umask(umask)
            os.fchmod(file.fileno(), (int(mode, 8) & 0o777 | 0o600) & ~umask)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _save(answer: Answer, file: IO[bytes], progress: Progress) -> None:
    for data in answer.chunks():
        file.write(data)
        progress.advance(len(data))


def fetch_folder(server: Client, ref: str, path: str, target: str, progress: Progress) -> None:
    """Unpack a folder of the sandbox into `target`, which is made if it does not exist."""
    with server.pack(ref, path) as answer:
        progress.begin(None)
        os.makedirs(target, exist_ok=True)
        source = io.BufferedReader(_Readable(answer), READ)
        extract(source, target, advance=progress.advance, skip=progress.skip)
        # Behind the archive's end may come the news that it is not whole.
        while source.read(READ):
            pass


class _Readable(io.RawIOBase):
    """An answer as a file to read from."""

    def __init__(self, answer: Answer) -> None:
        self._chunks = answer.chunks()
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._chunks, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
