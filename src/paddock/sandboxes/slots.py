"""Small numbers, one for each sandbox or tenant: as root they become host users of their own."""

from __future__ import annotations

from paddock.errors import Exhausted

MOST = 60_000


class Slots:
    def __init__(self, taken: dict[str, int]) -> None:
        self._by_owner = dict(taken)
        self._taken = set(taken.values())
        self._last = max(self._taken, default=0)

    def of(self, owner: str) -> int | None:
        return self._by_owner.get(owner)

    def take(self, owner: str) -> int:
        """A number that nobody has. Numbers go round, so that one is not used again at once."""
        for step in range(1, MOST + 1):
            slot = (self._last + step - 1) % MOST + 1
            if slot not in self._taken:
                self._last = slot
                self._taken.add(slot)
                self._by_owner[owner] = slot
                return slot
        raise Exhausted("there is no free user number for another sandbox", reason="no_slots")

    def free(self, owner: str) -> None:
        slot = self._by_owner.pop(owner, None)
        if slot is not None:
            self._taken.discard(slot)
