"""The terminal we run on: raw while a command inside has it, and as it was afterwards, whatever happens."""

from __future__ import annotations

import atexit
import contextlib
import os
import termios
import tty

from paddock.client.shapes import TerminalSize

MAX_CELLS = 4096


def size_of(*descriptors: int) -> TerminalSize:
    """Of the first descriptor that is a terminal; the usual one when none is."""
    for fd in descriptors:
        try:
            columns, rows = os.get_terminal_size(fd)
        except OSError:
            continue
        if rows > 0 and columns > 0:
            return {"rows": min(rows, MAX_CELLS), "columns": min(columns, MAX_CELLS)}
    return {"rows": 24, "columns": 80}


class RawTerminal:
    """While entered, keys go through uninterpreted. Does nothing where there is no terminal."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._saved: list[object] | None = None

    @property
    def active(self) -> bool:
        return self._saved is not None

    def __enter__(self) -> RawTerminal:
        if os.isatty(self._fd):
            saved = termios.tcgetattr(self._fd)
            atexit.register(self.restore)
            self._saved = saved
            tty.setraw(self._fd, termios.TCSADRAIN)
        return self

    def restore(self) -> None:
        if self._saved is None:
            return
        saved, self._saved = self._saved, None
        # A terminal that has gone needs nothing restored.
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._fd, termios.TCSADRAIN, saved)  # type: ignore[arg-type]
        atexit.unregister(self.restore)

    def __exit__(self, *_: object) -> None:
        self.restore()
