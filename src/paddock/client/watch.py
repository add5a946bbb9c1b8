"""Following a stream over lost connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from paddock.client.sse import ServerEvent
from paddock.errors import Timeout, Unavailable

GIVE_UP_SECONDS = 60.0
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0


class Patience:
    """How long to wait before each further try, and when to give up."""

    def __init__(self, seconds: float = GIVE_UP_SECONDS) -> None:
        self._seconds = seconds
        self.reset()

    def reset(self) -> None:
        self._pause = FIRST_PAUSE
        self._deadline: float | None = None

    def wait(self) -> bool:
        """Wait a little; False when it is time to give up."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._seconds
        if now >= self._deadline:
            return False
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        return True


def followed(
    ask: Callable[[str | None], Iterator[ServerEvent]], after: str | None, patience: Patience | None = None
) -> Iterator[ServerEvent]:
    """Ask again, from the last event seen, whenever the stream ends. A first failure is told at once."""
    last = after
    patience = patience or Patience()
    connected = False
    while True:
        try:
            for event in ask(last):
                connected = True
                patience.reset()
                last = event.id or last
                yield event
            connected = True
        except (Unavailable, Timeout):
            if not connected:
                raise
            if not patience.wait():
                raise
        else:
            # A server that stops ends its streams in good order: it may be back in a moment.
            patience.wait()
