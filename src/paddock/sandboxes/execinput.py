"""Input that came with an exec's request, kept while the exec lives: a restarted server goes on giving it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

_NAME = "input"
_MORE, _END = b"\0", b"\1"
"""The file's first byte: whether the process's input ends with these bytes."""


def keep(folder: Path, data: bytes, *, end: bool) -> None:
    """A disk that is full does not keep the exec from starting: only a crash at that moment would tell."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / _NAME
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write((_END if end else _MORE) + data)
    except OSError as error:
        log.warning("input_not_kept", folder=str(folder), error=str(error))
        forget(folder)


def kept(folder: Path) -> tuple[bytes, bool] | None:
    """The input, and whether it ends there."""
    try:
        content = (folder / _NAME).read_bytes()
    except OSError:
        return None
    return (content[1:], content[:1] == _END) if content else None


def forget(folder: Path) -> None:
    with suppress(OSError):
        (folder / _NAME).unlink()
        # Larger output lies here too, and stays.
        folder.rmdir()
