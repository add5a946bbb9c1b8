"""For those who look after the server: is it up, is it ready, what does it count, what can be called."""

import json
from html import escape
from typing import Any

from fastapi import APIRouter
from sqlalchemy import text
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from paddock.api.metrics import Metrics
from paddock.api.routing import ERRORS, Given
from paddock.api.schemas import ErrorBody
from paddock.api.streaming import shutting_down
from paddock.errors import Unavailable

routes = APIRouter(tags=["health"], redirect_slashes=False)

_TEXT: dict[str, Any] = {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "As text"}
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@routes.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> Response:
    """The server answers."""
    return PlainTextResponse("ok")


@routes.get(
    "/readyz",
    response_class=Response,
    responses={200: _TEXT, 503: {"model": ErrorBody, "description": "Not now"}},
)
async def readyz(services: Given) -> Response:
    """The store answers and every sandbox has been recovered."""
    if services.closing.is_set():
        raise shutting_down()
    if not services.recovered:
        raise Unavailable("sandboxes are still being recovered", reason="recovering", hint="try again")
    await services.store.fetch_one(text("SELECT 1"))
    return PlainTextResponse("ok")


@routes.get(
    "/metrics",
    response_class=Response,
    responses={200: _TEXT, **{status: ERRORS[status] for status in (401, 403, 429, 500)}},
)
async def read_metrics(request: Request, services: Given) -> Response:
    """For Prometheus; with `Accept: application/json`, reference 5's variables."""
    metrics: Metrics = request.app.state.metrics
    if request.headers.get("accept", "").startswith("application/json"):
        return Response(json.dumps(metrics.expvar()), media_type="application/json")
    return Response(metrics.text(), headers={"Content-Type": PROMETHEUS})


@routes.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    return Response(json.dumps(request.app.openapi()), media_type="application/json")


@routes.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """A plain list: pages that load their scripts from elsewhere have no place here."""
    rows = [
        f"<tr><td>{method.upper()}<td><code>{escape(path)}</code><td>{escape(operation.get('summary', ''))}"
        for path, methods in request.app.openapi()["paths"].items()
        for method, operation in methods.items()
    ]
    return HTMLResponse(
        "<!doctype html><meta charset=utf-8><title>Paddock API</title>"
        "<style>body{font:15px system-ui;margin:2em}td{padding:.2em 1em .2em 0}</style><h1>Paddock API</h1>"
        f'<p>The full description: <a href="/openapi.json">openapi.json</a><table>{"".join(rows)}</table>'
    )
