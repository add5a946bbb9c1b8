"""Execs: started, awaited, fed, signalled, canceled, and their output read."""

from typing import Annotated, Literal

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import Response

from paddock.api.body import accepts, accepts_bytes, as_json, parsed
from paddock.api.call import actor, call_of
from paddock.api.output import Encoding, Wanted, as_lines, as_sse, output_events, raw_output
from paddock.api.routing import ExecId, Given, Ref, exec_id_of, router
from paddock.api.schemas import ExecList, StdinTaken
from paddock.api.streaming import Streaming, while_open
from paddock.errors import Invalid
from paddock.sandboxes.model import Exec, ExecResult, ExecState
from paddock.sandboxes.requests import CancelRequest, ExecRequest, SignalRequest, TerminalSize

routes = router("execs")

LONGEST_WAIT = 3600.0
STDIN_PIECE = 256 << 10
_OUTPUT_KINDS = {
    kind: {"schema": {"type": "string"}} for kind in ("application/x-ndjson", "text/event-stream")
} | {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


@routes.post(
    "/sandboxes/{ref}/execs",
    response_class=Response,
    responses={
        200: {"model": ExecResult, "description": "It has ended: its result and output"},
        202: {"model": Exec, "description": "It was started in the background"},
    },
    openapi_extra=accepts(ExecRequest),
)
async def start_exec(request: Request, ref: Ref) -> Response:
    """Run a command. In the foreground the answer has its output; a caller who leaves cancels it."""
    services = request.app.state.services
    wanted = await parsed(request, ExecRequest)
    if wanted.background:
        exec_ = await services.sandboxes.start_exec(ref, wanted, by=actor(request))
        call_of(request).target += f"/{exec_.id}"
        return as_json(exec_, 202, {"Location": f"/api/v1/sandboxes/{exec_.sandbox_id}/execs/{exec_.id}"})
    work = services.sandboxes.run_exec(ref, wanted, by=actor(request))
    result: ExecResult = await while_open(services, request.receive, work)
    call_of(request).target += f"/{result.id}"
    return as_json(result)


@routes.get("/sandboxes/{ref}/execs", response_model=ExecList)
async def list_execs(
    services: Given,
    ref: Ref,
    state: Annotated[list[ExecState] | None, Query(description="Only these; may be repeated")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """The newest first."""
    found = await services.sandboxes.list_execs(ref, states=state or (), limit=limit)
    return as_json(ExecList.model_construct(execs=list(found)))


@routes.get("/sandboxes/{ref}/execs/{exec_id}", response_model=Exec)
async def show_exec(services: Given, ref: Ref, exec_id: ExecId) -> Response:
    return as_json(await services.sandboxes.get_exec(ref, exec_id_of(exec_id)))


@routes.get("/sandboxes/{ref}/execs/{exec_id}/wait", response_model=Exec)
async def wait_exec(
    request: Request,
    services: Given,
    ref: Ref,
    exec_id: ExecId,
    timeout: Annotated[float, Query(ge=0, le=LONGEST_WAIT, allow_inf_nan=False)] = 60.0,
) -> Response:
    """Answer when it has ended. While it runs on after `timeout` seconds: 504, and ask again."""
    work = services.sandboxes.wait_exec(ref, exec_id_of(exec_id), timeout)
    return as_json(await while_open(services, request.receive, work))


@routes.get(
    "/sandboxes/{ref}/execs/{exec_id}/output",
    response_class=Response,
    responses={200: {"content": _OUTPUT_KINDS, "description": "Events, or bytes with `encoding=raw`"}},
)
async def exec_output(
    services: Given,
    ref: Ref,
    exec_id: ExecId,
    after: Annotated[int | None, Query(ge=0, le=2**63, description="The last seq that you have")] = None,
    follow: Annotated[bool, Query(description="Go on until it ends")] = True,
    encoding: Literal["text", "base64", "raw"] = "text",
    stream: Literal["stdout", "stderr"] | None = None,
    accept: Annotated[str, Header()] = "",
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """From the beginning or from behind any seq, each byte once and in order.

    As NDJSON; as server-sent events with `Accept: text/event-stream`; as plain bytes with `encoding=raw`.
    """
    exec_ = await services.sandboxes.get_exec(ref, exec_id_of(exec_id))
    sse = encoding != "raw" and "text/event-stream" in accept
    if after is None:
        after = event_number(last_event_id) or 0
    form: Encoding = "base64" if encoding == "base64" else "text"
    wanted = Wanted(exec_.sandbox_id, exec_.id, after, follow, form, stream)
    if encoding == "raw":
        return Streaming(services, raw_output(services, wanted), "application/octet-stream")
    events = output_events(services, wanted)
    if sse:
        return Streaming(
            services,
            as_sse(events),
            "text/event-stream",
            headers={"Cache-Control": "no-store"},
            heartbeat=True,
        )
    return Streaming(services, as_lines(events), "application/x-ndjson", framed=True)


def event_number(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Invalid(f"Last-Event-ID: {text!r} is not a number")
    return int(text)


@routes.post(
    "/sandboxes/{ref}/execs/{exec_id}/cancel",
    response_model=Exec,
    openapi_extra=accepts(CancelRequest, required=False),
)
async def cancel_exec(request: Request, services: Given, ref: Ref, exec_id: ExecId) -> Response:
    """End its whole process tree: SIGTERM, and SIGKILL after the grace."""
    wanted = await parsed(request, CancelRequest, empty=b"{}")
    return as_json(await services.sandboxes.cancel_exec(ref, exec_id_of(exec_id), grace=wanted.grace))


@routes.post(
    "/sandboxes/{ref}/execs/{exec_id}/signal", response_model=Exec, openapi_extra=accepts(SignalRequest)
)
async def signal_exec(request: Request, services: Given, ref: Ref, exec_id: ExecId) -> Response:
    wanted = await parsed(request, SignalRequest)
    number = int(wanted.signal)
    return as_json(await services.sandboxes.signal_exec(ref, exec_id_of(exec_id), number, tree=wanted.tree))


@routes.post(
    "/sandboxes/{ref}/execs/{exec_id}/stdin", response_model=StdinTaken, openapi_extra=accepts_bytes()
)
async def write_stdin(
    request: Request,
    services: Given,
    ref: Ref,
    exec_id: ExecId,
    end: Annotated[bool, Query(description="Close it afterwards")] = False,
) -> Response:
    """Give the body as input: any bytes, any size. The call lasts as long as the process takes to read."""
    exec_id_of(exec_id)
    exec_ = await services.sandboxes.get_exec(ref, exec_id)
    received = 0
    async for part in request.stream():
        for start in range(0, len(part), STDIN_PIECE):
            piece = part[start : start + STDIN_PIECE]
            exec_ = await services.sandboxes.write_stdin(ref, exec_id, piece)
            received += len(piece)
    if end:
        exec_ = await services.sandboxes.close_stdin(ref, exec_id)
    return as_json(StdinTaken.model_construct(exec=exec_, received=received))


@routes.post("/sandboxes/{ref}/execs/{exec_id}/close-stdin", response_model=Exec)
async def close_stdin(services: Given, ref: Ref, exec_id: ExecId) -> Response:
    return as_json(await services.sandboxes.close_stdin(ref, exec_id_of(exec_id)))


@routes.post(
    "/sandboxes/{ref}/execs/{exec_id}/resize", response_model=Exec, openapi_extra=accepts(TerminalSize)
)
async def resize_exec(request: Request, services: Given, ref: Ref, exec_id: ExecId) -> Response:
    size = await parsed(request, TerminalSize)
    return as_json(await services.sandboxes.resize_exec(ref, exec_id_of(exec_id), size.rows, size.columns))
