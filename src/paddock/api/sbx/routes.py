"""Reference 5 over HTTP."""

import base64
import secrets
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from paddock.api.body import accepts, parsed
from paddock.api.call import actor, call_of
from paddock.api.routing import Given, exec_id_of
from paddock.api.sbx.shapes import (
    MAX_TIMEOUT,
    PREFIX,
    Created,
    CreateRequest,
    Deleted,
    ExecAnswer,
    ExecBody,
    ExecStatus,
    Row,
    SbxError,
    Shown,
    code_of,
    namespace_of,
    phase_of,
    row_of,
    status_of,
)
from paddock.api.services import Services
from paddock.api.streaming import while_open
from paddock.errors import Conflict, Gone, Invalid, NotFound
from paddock.sandboxes.model import Exec, ExecResult, Sandbox
from paddock.sandboxes.requests import CreateSandbox, ExecRequest, is_name

_STATUSES = (400, 401, 403, 404, 409, 410, 413, 429, 500, 501, 503, 504, 507)
_ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": SbxError} for status in _STATUSES}
routes = APIRouter(tags=["reference 5"], responses=_ERRORS, redirect_slashes=False)

BAD_ID = "id must be DNS-1123 compatible (lowercase letters, numbers, '-')"
_CONFLICTS = {
    "exec_ended": "exec is already in terminal state",
    "exec_canceling": "exec cancel is already in progress",
}


def _json(model: BaseModel) -> Response:
    return Response(model.model_dump_json(exclude_none=True), media_type="application/json")


def find(services: Services, sandbox_id: str) -> Sandbox:
    """By id, or by namespace. Names, and whatever else is on the host, are not ids."""
    for candidate in (sandbox_id, sandbox_id.removeprefix(PREFIX)):
        try:
            found = services.sandboxes.get(candidate)
        except NotFound:
            continue
        if found.id == candidate:
            return found
    raise NotFound(f'sandbox "{sandbox_id}" not found', reason="sandbox_not_found")


async def find_exec(services: Services, sandbox: Sandbox, exec_id: str) -> Exec:
    try:
        return await services.sandboxes.get_exec(sandbox.id, exec_id_of(exec_id))
    except NotFound as error:
        raise NotFound("exec not found", reason=error.reason) from error


@routes.post("/sandboxes", response_model=Created, openapi_extra=accepts(CreateRequest))
async def create(request: Request, services: Given) -> Response:
    """Asked again with the same id, the existing sandbox is the answer."""
    wanted = await parsed(request, CreateRequest)
    if wanted.id and not is_name(wanted.id):
        raise Invalid(BAD_ID)
    sandbox = await _existing_or_new(services, wanted, actor(request))
    call_of(request).target = sandbox.id
    return _json(Created(id=sandbox.id, namespace=namespace_of(sandbox.id)))


async def _existing_or_new(services: Services, wanted: CreateRequest, by: str | None) -> Sandbox:
    if wanted.id:
        try:
            return find(services, wanted.id)
        except NotFound:
            pass
    try:
        sandbox = await services.sandboxes.create(_to_create(wanted), by=by)
    except Conflict:
        # Somebody else was asked for the same id at the same time.
        if not wanted.id:
            raise
        return find(services, wanted.id)
    if wanted.command:
        start = ExecRequest(command=wanted.command, background=True)
        await services.sandboxes.start_exec(sandbox.id, start, by=by)
    return sandbox


def _to_create(wanted: CreateRequest) -> CreateSandbox:
    hosts = {"SBX_ALLOWED_HOSTS": wanted.allowed_hosts, "SBX_DISALLOWED_HOSTS": wanted.disallowed_hosts}
    environment = {name: ",".join(value) for name, value in hosts.items() if value} | wanted.env
    kept = wanted.model_dump(exclude_defaults=True, exclude={"id", "image", "env", "command"})
    fields: dict[str, Any] = {"environment": environment, "metadata": {"sbx": kept} if kept else {}}
    if wanted.id:
        fields["id"] = wanted.id
    if wanted.image:
        fields["image"] = wanted.image
    return CreateSandbox.model_validate(fields)


@routes.get("/sandboxes", response_model=list[Row])
async def list_all(services: Given) -> Response:
    rows = []
    for sandbox in sorted(services.sandboxes.list(limit=100_000), key=lambda one: one.id):
        newest = await services.sandboxes.list_execs(sandbox.id, limit=1)
        rows.append(row_of(sandbox, newest[0].created_at if newest else None))
    return Response(
        "[" + ",".join(row.model_dump_json() for row in rows) + "]", media_type="application/json"
    )


@routes.get("/sandboxes/{sandbox_id}", response_model=Shown)
async def show(services: Given, sandbox_id: str) -> Response:
    sandbox = find(services, sandbox_id)
    return _json(Shown(id=sandbox.id, namespace=namespace_of(sandbox.id), phase=phase_of(sandbox)))


@routes.delete("/sandboxes/{sandbox_id}", response_model=Deleted)
async def delete(services: Given, sandbox_id: str) -> Response:
    await services.sandboxes.delete(find(services, sandbox_id).id)
    return _json(Deleted())


@routes.post("/sandboxes/{sandbox_id}/exec", response_model=ExecAnswer, openapi_extra=accepts(ExecBody))
async def run(request: Request, services: Given, sandbox_id: str) -> Response:
    """A command that fails is an answer, not an error: its output and exit code are kept."""
    wanted = await parsed(request, ExecBody)
    sandbox = find(services, sandbox_id)
    exec_request = _to_exec(wanted)
    try:
        if wanted.asynchronous:
            exec_ = await services.sandboxes.start_exec(sandbox.id, exec_request, by=actor(request))
            return _json(ExecAnswer(exec_id=exec_.id, status=exec_.state.value))
        work = services.sandboxes.run_exec(sandbox.id, exec_request, by=actor(request))
        result = await while_open(services, request.receive, work)
    except Conflict as error:
        raise Conflict(f"sandbox not ready: {error.message}", reason=error.reason) from error
    return _json(_answer(result))


def _to_exec(wanted: ExecBody) -> ExecRequest:
    if not wanted.command:
        raise Invalid("command is required")
    seconds = wanted.timeout_seconds
    if seconds is not None and seconds <= 0:
        raise Invalid("timeout_seconds must be > 0")
    if seconds is not None and seconds > MAX_TIMEOUT:
        raise Invalid(f"timeout_seconds must be <= {MAX_TIMEOUT}")
    return ExecRequest(
        id=secrets.token_hex(8),
        command=wanted.command,
        timeout=float(seconds) if seconds is not None else None,
        background=bool(wanted.asynchronous),
    )


def _answer(result: ExecResult) -> ExecAnswer:
    def text(value: str) -> str | None:
        if result.encoding == "base64":
            value = base64.b64decode(value).decode(errors="replace")
        return value or None

    return ExecAnswer(
        stdout=text(result.stdout),
        stderr=text(result.stderr),
        status=result.state.value,
        exit_code=code_of(result),
    )


@routes.get("/sandboxes/{sandbox_id}/execs/{exec_id}", response_model=ExecStatus)
async def exec_status(services: Given, sandbox_id: str, exec_id: str) -> Response:
    sandbox = find(services, sandbox_id)
    return _json(status_of(await find_exec(services, sandbox, exec_id), sandbox_id))


@routes.post("/sandboxes/{sandbox_id}/execs/{exec_id}/cancel", response_model=ExecStatus)
async def cancel(services: Given, sandbox_id: str, exec_id: str) -> Response:
    sandbox = find(services, sandbox_id)
    exec_ = await find_exec(services, sandbox, exec_id)
    try:
        exec_ = await services.sandboxes.cancel_exec(sandbox.id, exec_.id)
    except Conflict as error:
        message = _CONFLICTS.get(error.reason, "exec cannot be canceled")
        raise Conflict(message, reason=error.reason) from error
    return _json(status_of(exec_, sandbox_id))


@routes.get("/sandboxes/{sandbox_id}/ingest", response_model=SbxError, include_in_schema=False)
async def ingest(sandbox_id: str) -> Response:
    raise refused_ingest()


def refused_ingest() -> Gone:
    return Gone("output is read from the sandbox itself; nobody can send it here", reason="ingest")
