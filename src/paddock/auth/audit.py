"""Who did what, to what, and how it went."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select

from paddock.auth.tokens import Principal
from paddock.store import Store
from paddock.store.schema import audit

_INSERT = insert(audit)
_as_json = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class AuditEntry:
    id: int
    at: float
    actor: str
    role: str
    action: str
    target: str
    outcome: str
    detail: dict[str, Any]


class Audit:
    def __init__(self, store: Store) -> None:
        self._store = store

    def record(
        self,
        actor: Principal,
        action: str,
        target: str = "",
        outcome: str = "ok",
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        row = {
            "at": time.time(),
            "actor": actor.name,
            "role": actor.role.value,
            "action": action,
            "target": _storable(target),
            "outcome": outcome,
            "detail": _as_json(dict(detail or {})),
        }
        self._store.write_later((_INSERT, row))

    async def read(self, limit: int = 100, before: int | None = None) -> list[AuditEntry]:
        """Newest first; `before` is the id of the last entry of the page above."""
        await self._store.flush()
        query = select(audit).order_by(audit.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(audit.c.id < before)
        rows = await self._store.fetch_all(query)
        return [AuditEntry(**{**row, "detail": json.loads(row["detail"])}) for row in rows]


def _storable(target: str) -> str:
    """A target comes from a request's path: an attempt must not escape the log by being unprintable."""
    return target.encode(errors="backslashreplace").decode().replace("\0", "\\0")[:1024]
