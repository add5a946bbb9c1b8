"""Runs a server until it is told to stop. The sandboxes live on."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog
import uvicorn
import uvloop
from starlette.types import ASGIApp

from paddock import __version__
from paddock.api.app import make_app
from paddock.api.services import Services
from paddock.config import DataDir, Settings, is_loopback
from paddock.errors import Invalid
from paddock.server.app import opened
from paddock.server.listen import BACKLOG, listen, url_of
from paddock.server.logs import configure

GRACE_SECONDS = 4.0
MAX_MESSAGE = 16 << 20
"""Of a WebSocket."""
WANTED_DESCRIPTORS = 65536

log = structlog.get_logger(__name__)


def serve(settings: Settings, *, on_ready: Callable[[str], None] | None = None) -> None:
    """Returns when a SIGTERM or SIGINT has ended it. `on_ready` gets the address."""
    configure(settings)
    _raise_descriptor_limit()
    uvloop.run(serve_async(settings, on_ready=on_ready or _announce(settings)))


def _raise_descriptor_limit() -> None:
    """Each sandbox costs three descriptors: a thousand of them do not fit into the usual soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, WANTED_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def serve_async(settings: Settings, *, on_ready: Callable[[str], None] | None = None) -> None:
    async with running(settings) as server:
        with _signals(server.stop), published(DataDir(settings.data_dir), server.url):
            if on_ready is not None:
                on_ready(server.url)
            log.info("server.ready", url=server.url, data_dir=str(settings.data_dir), version=__version__)
            await server.ended()
    log.info("server.stopped")


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers."""

    url: str
    services: Services
    _server: _Server
    _task: asyncio.Task[None]

    def stop(self) -> None:
        self._server.stop()

    async def ended(self) -> None:
        await asyncio.shield(self._task)


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Running]:
    """Answers while this is open; leaving it ends every stream and connection, and no sandbox."""
    if settings.no_auth and not is_loopback(settings.host):
        raise Invalid(
            f"without authentication the server listens on loopback only, and {settings.host} is not",
            reason="no_auth",
            hint="leave --no-auth out, or use --host 127.0.0.1",
        )
    with closing(listen(settings)) as sock:
        async with opened(settings) as services:
            server = _Server(_config(make_app(services)), services.closing)
            task = asyncio.create_task(server.serve(sockets=[sock]))
            try:
                yield Running(url_of(sock, settings.host), services, server, task)
            finally:
                server.stop()
                await task


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="websockets-sansio",
        loop="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(GRACE_SECONDS),
        ws_max_size=MAX_MESSAGE,
        ws_ping_interval=20.0,
        ws_ping_timeout=20.0,
        ws_per_message_deflate=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
    )


class _Server(uvicorn.Server):
    """uvicorn, with the signals left to us, and waiting for its end instead of looking for it."""

    def __init__(self, config: uvicorn.Config, closing: asyncio.Event) -> None:
        super().__init__(config)
        self._closing = closing

    def stop(self) -> None:
        self.should_exit = True
        self._closing.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        await self._closing.wait()


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    handled = (signal.SIGTERM, signal.SIGINT)
    for number in handled:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


@contextmanager
def published(data: DataDir, url: str) -> Iterator[None]:
    """Tell the command line on this machine where the server is. It has other ways to find out."""
    try:
        _replace(data.server_json, {"url": url, "pid": os.getpid(), "version": __version__})
    except OSError as error:
        log.warning("server.json_not_written", path=str(data.server_json), error=str(error))
    try:
        yield
    finally:
        with suppress(OSError):
            data.server_json.unlink(missing_ok=True)


def _replace(path: Path, content: dict[str, object]) -> None:
    descriptor, name = tempfile.mkstemp(prefix=".server-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(content, file)
            file.write("\n")
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError:
        os.unlink(name)
        raise


def _announce(settings: Settings) -> Callable[[str], None]:
    def announce(url: str) -> None:
        lines = [f"Paddock is at {url}"]
        if settings.no_auth:
            lines.append("It asks nobody who they are (no_auth): keep it to yourself.")
        else:
            token = DataDir(settings.data_dir).admin_token
            lines.append(f"The paddock command on this machine is signed in by {token}, which only")
            lines.append("your user can read. Elsewhere: set PADDOCK_URL, and PADDOCK_TOKEN to its content.")
        # Into a file on a full disk, perhaps: no reason not to serve.
        with suppress(OSError):
            print(*lines, sep="\n", flush=True)

    return announce
