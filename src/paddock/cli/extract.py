"""Unpacking an archive that comes from a sandbox: whatever it holds, nothing outside the target is touched.

Every step goes through descriptors of folders that were opened without following a link, so no link, whether
it came with the archive or was there before, can lead a write elsewhere. Left out, with a word about it, is
what cannot be placed safely: absolute names, `..`, links that point out of the folder, devices.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from typing import IO

from paddock.errors import PaddockError

COPY = 256 << 10
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Parts = tuple[str, ...]


class Refused(Exception):
    """An entry that cannot be placed, and why."""


def extract(
    source: IO[bytes], target: str, *, advance: Callable[[int], None], skip: Callable[[str], None]
) -> None:
    """Unpack what is below the archive's first folder into the folder `target`, which exists."""
    root = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        unpacking = _Unpacking(root, advance)
        with tarfile.open(fileobj=source, mode="r|") as archive:
            for member in archive:
                try:
                    unpacking.place(archive, member)
                except Refused as refused:
                    skip(f"{member.name}: {refused}")
        unpacking.finish()
    except (tarfile.TarError, EOFError) as error:
        raise PaddockError(f"the archive is broken: {error}", reason="archive") from error
    finally:
        os.close(root)


class _Unpacking:
    def __init__(self, root: int, advance: Callable[[int], None]) -> None:
        self._root = root
        self._advance = advance
        self._folders: dict[Parts, tuple[int, float]] = {}
        self._written: set[Parts] = set()

    def place(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = _inside(member.name)
        if not parts:
            return
        if member.isdir():
            with self._folder(parts):
                # A folder without write permission would refuse its own contents, so modes come last.
                self._folders[parts] = (member.mode & 0o777 | 0o700, member.mtime)
            return
        with self._folder(parts[:-1]) as parent:
            if member.isreg():
                self._file(archive, member, parent, parts)
            elif member.issym():
                self._link(member.linkname, parent, parts)
            elif member.islnk():
                self._hard_link(member.linkname, parent, parts)
            else:
                raise Refused("not a file, a folder or a link")

    @contextlib.contextmanager
    def _folder(self, parts: Parts) -> Iterator[int]:
        """A descriptor of the folder, made with all above it where it is missing."""
        current = os.dup(self._root)
        try:
            for part in parts:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=current)
                try:
                    below = os.open(part, _FOLDER, dir_fd=current)
                except (NotADirectoryError, OSError) as error:
                    raise Refused(f"{part} is not a folder here ({error.strerror})") from error
                os.close(current)
                current = below
            yield current
        finally:
            os.close(current)

    def _file(self, archive: tarfile.TarFile, member: tarfile.TarInfo, parent: int, parts: Parts) -> None:
        content = archive.extractfile(member)
        assert content is not None
        _clear(parts[-1], parent)
        fd = os.open(parts[-1], _NEW_FILE, 0o600, dir_fd=parent)
        with os.fdopen(fd, "wb", buffering=0) as file:
            while data := content.read(COPY):
                file.write(data)
                self._advance(len(data))
            os.fchmod(fd, member.mode & 0o755 | 0o600)
            with contextlib.suppress(OSError, OverflowError, ValueError):
                os.utime(fd, (member.mtime, member.mtime))
        self._written.add(parts)

    def _link(self, to: str, parent: int, parts: Parts) -> None:
        _require_inside(to, depth=len(parts) - 1)
        _clear(parts[-1], parent)
        os.symlink(to, parts[-1], dir_fd=parent)

    def _hard_link(self, to: str, parent: int, parts: Parts) -> None:
        source = _inside(to)
        # Only to what this archive brought: a link to a file that was here before would lend it out.
        if source not in self._written:
            raise Refused("a link to a file that the archive does not hold")
        _clear(parts[-1], parent)
        with self._folder(source[:-1]) as folder:
            if not stat.S_ISREG(os.stat(source[-1], dir_fd=folder, follow_symlinks=False).st_mode):
                raise Refused("a link to something that is not a file")
            os.link(source[-1], parts[-1], src_dir_fd=folder, dst_dir_fd=parent, follow_symlinks=False)
        self._written.add(parts)

    def finish(self) -> None:
        """Modes and times of folders, deepest first: writing into one changes its time."""
        for parts, (mode, mtime) in sorted(self._folders.items(), key=lambda item: -len(item[0])):
            with contextlib.suppress(Refused), self._folder(parts) as folder:
                os.fchmod(folder, mode)
                with contextlib.suppress(OSError, OverflowError, ValueError):
                    os.utime(folder, (mtime, mtime))


def _inside(name: str) -> Parts:
    """The name without the archive's first folder; refused when it could leave the target."""
    if name.startswith("/") or "\0" in name:
        raise Refused("an absolute name")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise Refused("a name with ..")
    return parts[1:]


def _require_inside(to: str, *, depth: int) -> None:
    """A link may go up only at its beginning, and only as far as it lies deep.

    A `..` further on could follow another link first and so mean a folder that its text does not show.
    """
    if not to or to.startswith("/") or "\0" in to:
        raise Refused(f"a link out of the folder, to {to}")
    parts = [part for part in to.split("/") if part not in ("", ".")]
    ups = next((i for i, part in enumerate(parts) if part != ".."), len(parts))
    if ups > depth or ".." in parts[ups:]:
        raise Refused(f"a link out of the folder, to {to}")


def _clear(name: str, parent: int) -> None:
    """Take away what stands in the way: the thing itself, never what it points to."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except IsADirectoryError as error:
        raise Refused("a folder of that name is here") from error
