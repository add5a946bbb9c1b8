"""Signals as something to wait for, beside descriptors, instead of something that happens anywhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from types import FrameType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE = 3
"""The third Ctrl-C means it, whatever we are waiting for."""


class Signals:
    """While entered, these signals are only noted: `fd` becomes readable, `take` says which."""

    def __init__(self, extra: Iterable[signal.Signals] = ()) -> None:
        self._numbers = (*ENDING, *extra)
        self._before: dict[int, Any] = {}
        self._interrupts = 0
        self.ended_by: int | None = None
        """The first of them that asked us to end."""

    def __enter__(self) -> Signals:
        self.fd, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in self._numbers:
            # One that is ignored, as under nohup, stays so.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self.fd)
        os.close(self._write)

    def _note(self, number: int, _: FrameType | None) -> None:
        if number in ENDING and self.ended_by is None:
            self.ended_by = number
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts >= PATIENCE:
                raise KeyboardInterrupt

    def take(self) -> list[int]:
        try:
            return list(os.read(self.fd, 64))
        except BlockingIOError:
            return []
