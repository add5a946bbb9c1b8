"""The one append-only log of facts, which every live view follows and can replay."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete, func, insert, select

from paddock.store import Store
from paddock.store.schema import events

RING = 4096
"""Recent events kept in memory. A follower that falls further behind reads from the store."""
_BATCH = 256

_INSERT = insert(events)
_as_json = json.JSONEncoder(separators=(",", ":")).encode
"""Made once: json.dumps would make one for every event."""


@dataclass(frozen=True, slots=True)
class Event:
    id: int
    at: float
    kind: str
    sandbox_id: str | None = None
    exec_id: str | None = None
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Filter:
    sandbox_id: str | None
    kinds: frozenset[str] | None

    def admits(self, event: Event) -> bool:
        if self.sandbox_id is not None and event.sandbox_id != self.sandbox_id:
            return False
        return self.kinds is None or event.kind in self.kinds


class EventLog:
    """Ids increase by one. Followers see an event only once it is committed: what a client was shown survives
    a crash, and its id is never given to another event.
    """

    def __init__(self, store: Store, last: int) -> None:
        self._store = store
        self._last = last
        self._committed = last
        self._recent: deque[Event] = deque(maxlen=RING)
        self._sleeping: set[asyncio.Future[None]] = set()

    @classmethod
    async def open(cls, store: Store) -> EventLog:
        row = await store.fetch_one(select(func.max(events.c.id).label("last")))
        return cls(store, (row["last"] or 0) if row else 0)

    @property
    def last_id(self) -> int:
        return self._last

    def append(
        self,
        kind: str,
        *,
        sandbox_id: str | None = None,
        exec_id: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> Event:
        self._last += 1
        event = Event(self._last, time.time(), kind, sandbox_id, exec_id, dict(data or {}))
        row = {
            "id": event.id,
            "at": event.at,
            "kind": kind,
            "sandbox_id": sandbox_id,
            "exec_id": exec_id,
            "data": _as_json(event.data),
        }
        self._recent.append(event)
        self._store.write_later((_INSERT, row), then=functools.partial(self._reached, event.id))
        return event

    async def read(
        self,
        after: int = 0,
        limit: int = 1000,
        sandbox_id: str | None = None,
        kinds: Collection[str] | None = None,
    ) -> list[Event]:
        """Everything appended so far, oldest first."""
        if self._committed < self._last:
            await self._store.flush()
        return await self._load(after, limit, _Filter(sandbox_id, frozenset(kinds) if kinds else None))

    def follow(
        self,
        after: int | None = None,
        sandbox_id: str | None = None,
        kinds: Collection[str] | None = None,
    ) -> AsyncIterator[Event]:
        """Events after the id `after` (None: from now on) and then the live ones, each exactly once."""
        start = self._last if after is None else max(0, min(after, self._last))
        return self._follow(start, _Filter(sandbox_id, frozenset(kinds) if kinds else None))

    async def prune(self, keep: int) -> None:
        """Forget all but the newest `keep` (at least one: it carries the last id over a restart)."""
        await self._store.write(delete(events).where(events.c.id <= self._last - max(keep, 1)))

    def _reached(self, committed: int) -> None:
        self._committed = committed
        sleeping, self._sleeping = self._sleeping, set()
        for future in sleeping:
            if not future.done():
                future.set_result(None)

    async def _follow(self, cursor: int, wanted: _Filter) -> AsyncIterator[Event]:
        while True:
            if cursor >= self._committed:
                await self._next_commit()
            elif self._recent and self._recent[0].id <= cursor + 1:
                batch = self._recent_after(cursor)
                for event in batch:
                    if wanted.admits(event):
                        yield event
                cursor = batch[-1].id
            else:
                # Taken before the read: whatever is committed by now, the read sees.
                committed = self._committed
                found = await self._load(cursor, _BATCH, wanted)
                for event in found:
                    yield event
                if len(found) == _BATCH:
                    cursor = found[-1].id
                else:
                    cursor = max(committed, found[-1].id if found else 0)

    def _recent_after(self, cursor: int) -> list[Event]:
        start = cursor + 1 - self._recent[0].id
        count = min(self._committed - cursor, _BATCH)
        return list(itertools.islice(self._recent, start, start + count))

    async def _next_commit(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeping.add(future)
        try:
            await future
        finally:
            self._sleeping.discard(future)

    async def _load(self, after: int, limit: int, wanted: _Filter) -> list[Event]:
        query = select(events).where(events.c.id > after).order_by(events.c.id).limit(limit)
        if wanted.sandbox_id is not None:
            query = query.where(events.c.sandbox_id == wanted.sandbox_id)
        if wanted.kinds is not None:
            query = query.where(events.c.kind.in_(sorted(wanted.kinds)))
        return [
            Event(
                row["id"], row["at"], row["kind"], row["sandbox_id"], row["exec_id"], json.loads(row["data"])
            )
            for row in await self._store.fetch_all(query)
        ]
