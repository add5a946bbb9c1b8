"""Sandboxes: made, listed, changed, paused, stopped, deleted."""

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from paddock.api.body import accepts, as_json, parsed
from paddock.api.call import actor, call_of
from paddock.api.routing import Given, Ref, router
from paddock.api.schemas import SandboxPage
from paddock.errors import Invalid
from paddock.sandboxes.model import Sandbox, SandboxStats, State
from paddock.sandboxes.requests import CreateSandbox, UpdateSandbox
from paddock.sandboxes.service import cursor

routes = router("sandboxes")


@routes.post(
    "/sandboxes",
    status_code=201,
    response_class=Response,
    responses={201: {"model": Sandbox, "description": "It runs"}},
    openapi_extra=accepts(CreateSandbox, required=False),
)
async def create_sandbox(request: Request) -> Response:
    """Make a sandbox. The answer comes when it runs."""
    wanted = await parsed(request, CreateSandbox, empty=b"{}")
    sandbox = await request.app.state.services.sandboxes.create(wanted, by=actor(request))
    call_of(request).target = sandbox.id
    return as_json(sandbox, 201, {"Location": f"/api/v1/sandboxes/{sandbox.id}"})


@routes.get("/sandboxes", response_model=SandboxPage)
async def list_sandboxes(
    services: Given,
    state: Annotated[list[State] | None, Query(description="Only these; may be repeated")] = None,
    label: Annotated[list[str] | None, Query(description="key=value; may be repeated")] = None,
    tenant: str | None = None,
    name: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    after: Annotated[str | None, Query(description="`next` of the page before")] = None,
) -> Response:
    """In the order of their making."""
    found = services.sandboxes.list(
        states=state or (),
        labels=_labels(label or []),
        tenant=tenant,
        name=name,
        limit=limit + 1,
        after=after,
    )
    page = list(found[:limit])
    return as_json(
        SandboxPage.model_construct(sandboxes=page, next=cursor(page[-1]) if len(found) > limit else None)
    )


def _labels(given: list[str]) -> dict[str, str]:
    labels = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise Invalid(f"label: {text!r} is not key=value")
        labels[key] = value
    return labels


@routes.get("/sandboxes/{ref}", response_model=Sandbox)
async def show_sandbox(services: Given, ref: Ref) -> Response:
    return as_json(services.sandboxes.get(ref))


@routes.patch("/sandboxes/{ref}", response_model=Sandbox, openapi_extra=accepts(UpdateSandbox))
async def update_sandbox(request: Request, services: Given, ref: Ref) -> Response:
    """What is left out stays; null takes a rule away."""
    return as_json(await services.sandboxes.update(ref, await parsed(request, UpdateSandbox)))


@routes.delete("/sandboxes/{ref}", response_model=Sandbox)
async def delete_sandbox(services: Given, ref: Ref) -> Response:
    """End its processes and remove its files. A tenant's storage stays."""
    return as_json(await services.sandboxes.delete(ref))


@routes.post("/sandboxes/{ref}/pause", response_model=Sandbox)
async def pause_sandbox(services: Given, ref: Ref) -> Response:
    """Freeze every process."""
    return as_json(await services.sandboxes.pause(ref))


@routes.post("/sandboxes/{ref}/resume", response_model=Sandbox)
async def resume_sandbox(services: Given, ref: Ref) -> Response:
    return as_json(await services.sandboxes.resume(ref))


@routes.post("/sandboxes/{ref}/stop", response_model=Sandbox)
async def stop_sandbox(services: Given, ref: Ref) -> Response:
    """End its processes; its record and the output of its execs stay until it is deleted."""
    return as_json(await services.sandboxes.stop(ref))


@routes.get("/sandboxes/{ref}/stats", response_model=SandboxStats)
async def sandbox_stats(services: Given, ref: Ref) -> Response:
    return as_json(await services.sandboxes.stats(ref))
