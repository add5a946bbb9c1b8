"""Small files beside the database that have to be whole and private."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from paddock.errors import Exhausted, Unavailable


def write_private(path: Path, text: str) -> None:
    """Replace a file that only its owner may read: whole or not at all, also across a crash."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.errno == errno.ENOSPC:
            raise Exhausted(f"no room for {path}", reason="disk_full", hint="free some space") from error
        raise Unavailable(
            f"cannot write {path}: {error.strerror}", reason="data_dir", hint="see that the folder is yours"
        ) from error
