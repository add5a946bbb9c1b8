"""The event log, live and from any place in it."""

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated

from fastapi import Header, Query
from starlette.responses import Response

from paddock.api.body import as_json
from paddock.api.execs import event_number
from paddock.api.output import sse_frame
from paddock.api.routing import Given, router
from paddock.api.schemas import EventBody, EventPage
from paddock.api.services import Services
from paddock.api.streaming import Streaming
from paddock.errors import NotFound
from paddock.events import Event

routes = router("events")


@routes.get(
    "/events",
    response_model=EventPage,
    responses={
        200: {
            "model": EventPage,
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
            "description": "Server-sent events without end; a page of them with `follow=0`",
        }
    },
)
async def read_events(
    services: Given,
    after: Annotated[int | None, Query(ge=0, le=2**62, description="The last id that you have")] = None,
    sandbox: Annotated[str | None, Query(max_length=128, description="Only of this one: id or name")] = None,
    kind: Annotated[list[str] | None, Query(description="Only these; may be repeated")] = None,
    follow: Annotated[bool, Query(description="Server-sent events, live")] = True,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Of a page")] = 1000,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """Behind `after` or `Last-Event-ID`; from now on when neither is given. Each once, in order."""
    if after is None:
        after = event_number(last_event_id)
    sandbox_id = _sandbox_id(services, sandbox) if sandbox is not None else None
    if not follow:
        found = await services.events.read(after or 0, limit, sandbox_id, kind)
        events = [EventBody(**asdict(event)) for event in found]
        return as_json(EventPage(events=events, last=services.events.last_id))
    live = services.events.follow(after, sandbox_id, kind)
    return Streaming(
        services, _frames(live), "text/event-stream", headers={"Cache-Control": "no-store"}, heartbeat=True
    )


def _sandbox_id(services: Services, ref: str) -> str:
    """Events outlive their sandbox: an id that is unknown now is looked for all the same."""
    try:
        return services.sandboxes.get(ref).id
    except NotFound:
        return ref.replace("\0", "")


async def _frames(events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    async for event in events:
        yield sse_frame(event.kind, asdict(event), event.id)
