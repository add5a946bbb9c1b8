"""What the API works with. The server makes it; `request.app.state.services` carries it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import HTTPConnection

from paddock.auth import Audit, RateLimiter, Tokens
from paddock.config import Settings
from paddock.events import EventLog
from paddock.runtimes.base import Runtime
from paddock.sandboxes.service import Sandboxes
from paddock.store import Store


@dataclass(slots=True)
class Services:
    settings: Settings
    store: Store
    events: EventLog
    tokens: Tokens
    audit: Audit
    limiter: RateLimiter
    sandboxes: Sandboxes
    runtimes: dict[str, Runtime]
    recovered: bool = True
    """Every sandbox of an earlier server has been found again, or found to be gone."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server stops: whatever waits or streams ends then."""
    left: set[asyncio.Task[Any]] = field(default_factory=set)
    """Work whose caller was sent away by the server's end. It is dropped after the sandboxes were let go, so
    that they do not feel it."""


async def services_of(connection: HTTPConnection) -> Services:
    services: Services = connection.app.state.services
    return services
