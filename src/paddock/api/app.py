"""The ASGI application: the gate, the lean path, and everything else by FastAPI."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from paddock.api import admin, attach, events, execs, files, health, sandboxes
from paddock.api.access import CREATE_SANDBOX, START_EXEC
from paddock.api.call import KEY
from paddock.api.faults import on_error
from paddock.api.gate import Gate
from paddock.api.metrics import Metrics
from paddock.api.openapi import describe
from paddock.api.probes import Probes
from paddock.api.sbx import routes as sbx_routes
from paddock.api.sbx import stream as sbx_stream
from paddock.api.services import Services
from paddock.errors import PaddockError

ROUTERS = (
    health.routes,
    sandboxes.routes,
    execs.routes,
    files.routes,
    events.routes,
    admin.routes,
    attach.routes,
    sbx_routes.routes,
    sbx_stream.routes,
)
_HANDLED = (
    PaddockError,
    RequestValidationError,
    WebSocketRequestValidationError,
    ValidationError,
    HTTPException,
    ClientDisconnect,
    Exception,
)


def make_app(services: Services) -> ASGIApp:
    metrics = Metrics(services)
    return Gate(Lean(make_routes(services, metrics)), services, metrics)


def make_routes(services: Services, metrics: Metrics) -> FastAPI:
    app = FastAPI(title="Paddock", openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.services = services
    app.state.metrics = metrics
    app.state.probes = Probes(services)
    for router in ROUTERS:
        app.include_router(router)
    for kind in _HANDLED:
        app.add_exception_handler(kind, on_error)

    def openapi() -> dict[str, object]:
        if app.openapi_schema is None:
            app.openapi_schema = describe(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
    return app


class Lean:
    """Takes the two calls whose speed is promised straight to their handlers, past FastAPI's routing."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = scope.get(KEY)
        if call is not None and call.rule is START_EXEC:
            scope["app"] = self._app
            response = await execs.start_exec(Request(scope, receive), scope["path"].split("/")[4])
        elif call is not None and call.rule is CREATE_SANDBOX:
            scope["app"] = self._app
            response = await sandboxes.create_sandbox(Request(scope, receive))
        else:
            await self._app(scope, receive, send)
            return
        await response(scope, receive, send)
