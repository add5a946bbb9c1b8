"""Where things lie inside the data folder."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paddock.errors import Exhausted, Unavailable

# Sandboxes run as other users than the server and must pass through, but may list nothing.
_PASS_THROUGH = 0o711
_PRIVATE = 0o700

# linux/fs.h: FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_TOPDIR_FL. The value is an int, whatever the numbers say.
_GET_FLAGS = 0x80086601
_SET_FLAGS = 0x40086602
_TOP_OF_HIERARCHY = 0x0002_0000
_FLAGS = struct.Struct("i4x")


@dataclass(frozen=True, slots=True)
class DataDir:
    root: Path

    @property
    def database(self) -> Path:
        return self.root / "private" / "paddock.db"

    @property
    def lock(self) -> Path:
        return self.root / "private" / "lock"

    @property
    def server_json(self) -> Path:
        """Address and process id of the running server, for the command line."""
        return self.root / "server.json"

    @property
    def admin_token(self) -> Path:
        return self.root / "admin-token"

    @property
    def sandboxes(self) -> Path:
        return self.root / "sandboxes"

    @property
    def tenants(self) -> Path:
        return self.root / "tenants"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def private(self) -> Path:
        return self.root / "private"

    def ensure(self) -> None:
        """Make the folders, and put right the modes of those that exist."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.root.chmod(_PASS_THROUGH)
            for folder, mode in (
                (self.private, _PRIVATE),
                (self.sandboxes, _PASS_THROUGH),
                (self.tenants, _PASS_THROUGH),
                (self.logs, _PRIVATE),
            ):
                folder.mkdir(mode=mode, exist_ok=True)
                folder.chmod(mode)
            _spread(self.sandboxes)
        except OSError as error:
            raise _unusable(self.root, error) from error


def _spread(folder: Path) -> None:
    """Ask ext4 to put each folder below into a block group of its own (chattr +T).

    It avoids inodes that were freed within the last half minute, and looks at each of them: where sandboxes
    come and go quickly in one group, a single mkdir takes a millisecond. Other file systems have neither.
    """
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = bytearray(_FLAGS.size)
            fcntl.ioctl(fd, _GET_FLAGS, flags)
            (now,) = _FLAGS.unpack(flags)
            if not now & _TOP_OF_HIERARCHY:
                fcntl.ioctl(fd, _SET_FLAGS, _FLAGS.pack(now | _TOP_OF_HIERARCHY))
        finally:
            os.close(fd)


def _unusable(path: Path, error: OSError) -> Unavailable:
    kind = Exhausted if error.errno == errno.ENOSPC else Unavailable
    return kind(
        f"cannot use {path}: {error.strerror or error}",
        reason="disk_full" if kind is Exhausted else "data_dir",
        hint="choose another folder with --data-dir or PADDOCK_DATA_DIR",
    )
