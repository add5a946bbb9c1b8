"""Files of a sandbox. Every path is resolved inside, by the guest, with the sandbox user's rights."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from posixpath import join, normpath
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from paddock.errors import Conflict, Denied, Exhausted, Invalid, NotFound, PaddockError, Timeout, Unavailable
from paddock.guest.link import Guest
from paddock.guest.process import Stream, collect
from paddock.guest.wire import Exit, GuestViolation, Outcome, Start
from paddock.sandboxes.box import Box
from paddock.sandboxes.boxes import Boxes
from paddock.sandboxes.model import Entry, FileEvent, Listing, Unpacked

Answer = TypeVar("Answer", bound=BaseModel)

MOST_ANSWER = 64 << 20
CALL_SECONDS = 60.0
MAX_DEPTH = 64
MAX_ENTRIES = 100_000

_FAILURES: dict[int, tuple[type[PaddockError], str]] = {
    errno.ENOENT: (NotFound, "path_not_found"),
    errno.EACCES: (Denied, "path_denied"),
    errno.EPERM: (Denied, "path_denied"),
    errno.EROFS: (Denied, "read_only"),
    errno.EEXIST: (Conflict, "path_exists"),
    errno.EISDIR: (Conflict, "is_a_directory"),
    errno.ENOTDIR: (Conflict, "not_a_directory"),
    errno.ENOTEMPTY: (Conflict, "not_empty"),
    errno.EBUSY: (Conflict, "path_busy"),
    errno.ETXTBSY: (Conflict, "path_busy"),
    errno.EXDEV: (Conflict, "other_filesystem"),
    errno.ENOSPC: (Exhausted, "disk_full"),
    errno.EDQUOT: (Exhausted, "disk_full"),
    errno.ENOMEM: (Exhausted, "out_of_memory"),
    errno.EAGAIN: (Exhausted, "process_limit"),
    errno.EMFILE: (Exhausted, "open_files"),
}


class FileStream:
    """Bytes from a sandbox. Iterate it, or close it."""

    def __init__(self, box: Box, stream: Stream, entry: Entry, failed: str) -> None:
        self.entry = entry
        self._box = box
        self._stream = stream
        self._path = failed
        self._open = True
        box.calls += 1

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks()

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            async for data in self._stream:
                yield data
            assert self._stream.exit is not None
            _check(self._stream.exit, self._stream.stderr.partition(b"\n")[2], self._path)
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        if self._open:
            self._open = False
            self._box.calls -= 1
            self._box.touch()
            await self._stream.aclose()


class Files:
    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes

    async def stat(self, ref: str, path: str, *, follow: bool = True) -> Entry:
        return _parse(Entry, await self._call(ref, "stat", path, str(int(follow))))

    async def list(self, ref: str, path: str, *, depth: int = 1, limit: int = 10_000) -> Listing:
        depth, limit = max(1, min(depth, MAX_DEPTH)), max(1, min(limit, MAX_ENTRIES))
        lines = (await self._call(ref, "list", path, str(depth), str(limit))).splitlines()
        truncated = bool(lines) and lines[-1] == b'{"truncated":true}'
        return Listing(
            entries=[_parse(Entry, line) for line in (lines[:-1] if truncated else lines)],
            truncated=truncated,
        )

    async def read(self, ref: str, path: str, *, offset: int = 0, length: int | None = None) -> FileStream:
        wanted = -1 if length is None else length
        return await self._stream(ref, "read", path, str(offset), str(wanted))

    async def write(
        self,
        ref: str,
        path: str,
        body: AsyncIterator[bytes],
        *,
        mode: str | None = None,
        parents: bool = True,
        exclusive: bool = False,
        mtime: int | None = None,
    ) -> Entry:
        """Atomic: the file has its old content until the whole body has arrived."""
        arguments = (
            mode or "-",
            str(int(parents)),
            str(int(exclusive)),
            "-" if mtime is None else str(mtime),
        )
        await self._room(ref)
        return _parse(Entry, await self._call(ref, "write", path, *arguments, body=body))

    async def mkdir(self, ref: str, path: str, *, mode: str | None = None, parents: bool = True) -> Entry:
        return _parse(Entry, await self._call(ref, "mkdir", path, mode or "-", str(int(parents))))

    async def move(self, ref: str, source: str, target: str, *, overwrite: bool = True) -> Entry:
        target = _resolve(self._boxes.box(ref), target)
        return _parse(Entry, await self._call(ref, "move", source, target, str(int(overwrite))))

    async def remove(self, ref: str, path: str, *, recursive: bool = False) -> None:
        await self._call(ref, "remove", path, str(int(recursive)))

    async def watch(self, ref: str, path: str, *, recursive: bool = True) -> AsyncIterator[FileEvent]:
        """Changes below a path, after a first event `ready`."""
        box = self._boxes.box(ref)
        path = _resolve(box, path)
        guest = await box.link()
        async with Stream(guest, _start("watch", path, str(int(recursive)))) as stream:
            rest = b""
            async for data in stream:
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    yield _parse(FileEvent, line)
                if len(rest) > 1 << 16:
                    raise GuestViolation("an event that does not end")
            assert stream.exit is not None
            _check(stream.exit, stream.stderr, path)

    async def pack(self, ref: str, path: str) -> FileStream:
        """A tar archive of a file or folder."""
        entry = await self.stat(ref, path, follow=False)
        return await self._stream(ref, "pack", path, entry=entry)

    async def unpack(self, ref: str, path: str, body: AsyncIterator[bytes]) -> Unpacked:
        await self._room(ref)
        return _parse(Unpacked, await self._call(ref, "unpack", path, body=body))

    async def _room(self, ref: str) -> None:
        box = self._boxes.box(ref)
        if box.over_disk:
            box.require_running()
            await self._boxes.refuse_when_full(box)

    async def _call(
        self, ref: str, name: str, path: str, *rest: str, body: AsyncIterator[bytes] | None = None
    ) -> bytes:
        box = self._boxes.box(ref)
        path = _resolve(box, path)
        guest = await box.link()
        async with _activity(box):
            # An upload takes as long as its sender does.
            timeout = CALL_SECONDS if body is None else None
            answer = await collect(
                guest, _start(name, path, *rest), stdin=body, limit=MOST_ANSWER, timeout=timeout
            )
        _check(answer.exit, answer.stderr, path)
        return answer.stdout

    async def _stream(
        self, ref: str, name: str, path: str, *rest: str, entry: Entry | None = None
    ) -> FileStream:
        box = self._boxes.box(ref)
        path = _resolve(box, path)
        guest: Guest = await box.link()
        stream = Stream(guest, _start(name, path, *rest))
        try:
            if entry is None:
                entry = await _header(stream, path)
            else:
                await stream.wait_started()
        except BaseException:
            await stream.aclose()
            raise
        return FileStream(box, stream, entry, path)


async def _header(stream: Stream, path: str) -> Entry:
    """The entry that `read` sends ahead of the bytes."""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            while b"\n" not in stream.stderr and stream.exit is None:
                await stream.changed()
            line, newline, _ = stream.stderr.partition(b"\n")
            if not newline or _message(line) is not None:
                _check(await stream.finish(), stream.stderr, path)
    except TimeoutError:
        raise Timeout(f"{path}: the sandbox does not answer", reason="guest_call_timeout") from None
    return _parse(Entry, line)


@asynccontextmanager
async def _activity(box: Box) -> AsyncIterator[None]:
    box.calls += 1
    try:
        yield
    finally:
        box.calls -= 1
        box.touch()


def _resolve(box: Box, path: str) -> str:
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= 4096 or "\0" in path:
        raise Invalid("a path is 1 to 4096 bytes without NUL", reason="bad_path")
    return join(box.record.workspace, path) if path != "." else normpath(box.record.workspace)


def _start(name: str, *arguments: str) -> Start:
    argv = [name.encode(), *(os.fsencode(argument) for argument in arguments)]
    return Start(argv=argv, environment=[], cwd=b"/", builtin=True, transient=True, stdin=False)


def _json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise GuestViolation("a file call's answer is not JSON") from None


def _clean(value: Any) -> Any:
    """Names that are not UTF-8 cannot be said in JSON to a client: their odd bytes become '?'."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _parse(kind: type[Answer], line: bytes) -> Answer:
    body = _json(line)
    try:
        return kind.model_validate({key: _clean(value) for key, value in body.items()})
    except (ValidationError, AttributeError):
        raise GuestViolation(f"a file call's answer is no {kind.__name__}") from None


def _check(exit: Exit, stderr: bytes, path: str) -> None:
    if exit.outcome is Outcome.EXITED and exit.code == 0:
        return
    if exit.outcome not in (Outcome.EXITED, Outcome.NOT_STARTED):
        raise Unavailable(
            "the file call was killed inside the sandbox", reason="call_killed", hint="try again"
        )
    kind, reason = _FAILURES.get(exit.code, (Invalid, "bad_path"))
    raise kind(f"{path}: {_message(stderr) or os.strerror(exit.code)}", reason=reason)


def _message(stderr: bytes) -> str | None:
    lines = stderr.strip().splitlines()
    try:
        text = json.loads(lines[-1])["error"]
    except (IndexError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return str(_clean(text))[:500] if isinstance(text, str) else None
