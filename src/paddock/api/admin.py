"""Tokens, the audit log, and what this server can do."""

import time
from dataclasses import asdict
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from paddock import __version__
from paddock.api.body import accepts, as_json, parsed
from paddock.api.call import call_of
from paddock.api.probes import Probes
from paddock.api.routing import Given, router
from paddock.api.schemas import (
    AuditLine,
    AuditPage,
    CreateToken,
    DoctorReport,
    Info,
    NewToken,
    TokenBody,
    TokenList,
)
from paddock.auth import Role
from paddock.sandboxes.model import LimitSet

routes = router("server")


@routes.get("/info", response_model=Info)
async def server_info(request: Request, services: Given) -> Response:
    settings = services.settings
    probes: Probes = request.app.state.probes
    principal = call_of(request).principal
    assert principal is not None
    limits = settings.limits
    return as_json(
        Info(
            version=__version__,
            default_runtime=settings.default_runtime,
            runtimes=await probes.runtimes(),
            limits=LimitSet(
                memory=limits.memory,
                cpus=limits.cpus,
                processes=limits.processes,
                disk=limits.disk,
                open_files=limits.open_files,
            ),
            max_request_bytes=settings.max_request_bytes,
            max_exec_timeout=settings.max_exec_timeout,
            authentication=not settings.no_auth,
            you=principal.name,
            role=principal.role.value,
        )
    )


@routes.get("/doctor", response_model=DoctorReport)
async def run_doctor(request: Request) -> Response:
    """Prove by using them, now, what this host can and cannot do."""
    probes: Probes = request.app.state.probes
    return as_json(await probes.report())


@routes.post("/tokens", status_code=201, response_model=NewToken, openapi_extra=accepts(CreateToken))
async def create_token(request: Request, services: Given) -> Response:
    """The secret is in this answer and nowhere else."""
    wanted = await parsed(request, CreateToken)
    expires_at = time.time() + wanted.expires_in if wanted.expires_in else None
    token, secret = await services.tokens.create(wanted.name, Role(wanted.role), expires_at)
    call_of(request).target = token.id
    return as_json(NewToken(**TokenBody.of(token).model_dump(), secret=secret), 201)


@routes.get("/tokens", response_model=TokenList)
async def list_tokens(services: Given) -> Response:
    return as_json(TokenList(tokens=[TokenBody.of(token) for token in services.tokens.list()]))


@routes.delete("/tokens/{token_id}", response_model=TokenBody)
async def revoke_token(services: Given, token_id: str) -> Response:
    """By id or name. It is refused from now on."""
    return as_json(TokenBody.of(await services.tokens.revoke(token_id)))


@routes.get("/audit", response_model=AuditPage)
async def read_audit(
    services: Given,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> Response:
    """Who did what, the newest first."""
    found = await services.audit.read(limit, before)
    entries = [AuditLine(**asdict(entry)) for entry in found]
    return as_json(AuditPage(entries=entries, next=entries[-1].id if len(entries) == limit else None))
