"""Wires the rooms together: everything a server needs, opened in order and closed in reverse."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress

from paddock.api.services import Services
from paddock.auth import Audit, RateLimiter, Tokens
from paddock.config import DataDir, Settings
from paddock.errors import Conflict, Exhausted, Invalid, Unavailable
from paddock.events import EventLog
from paddock.runtimes.factory import make_runtimes
from paddock.sandboxes.service import Sandboxes
from paddock.server.belonging import belong_together
from paddock.store import Store

FAKE = "fake"
"""The runtime without isolation: present only where the settings name it."""


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Services]:
    """Yields when every sandbox of an earlier server has been recovered. Leaving it stops none of them."""
    data = DataDir(settings.data_dir)
    data.ensure()
    async with AsyncExitStack() as stack:
        stack.enter_context(locked(data))
        store = await Store.open(settings.database_url)
        stack.push_async_callback(store.close)
        await belong_together(data, store)
        events = await EventLog.open(store)
        tokens = await Tokens.open(store)
        await tokens.ensure_admin(data.admin_token)
        runtimes = make_runtimes(settings.data_dir, allow_fake=settings.default_runtime == FAKE)
        if settings.default_runtime not in runtimes:
            raise Invalid(
                f"there is no runtime {settings.default_runtime!r}",
                reason="runtime_unknown",
                hint=f"set default_runtime to one of: {', '.join(runtimes)}",
            )
        sandboxes = Sandboxes(settings=settings, store=store, events=events, runtimes=runtimes, data=data)
        services = Services(
            settings=settings,
            store=store,
            events=events,
            tokens=tokens,
            audit=Audit(store),
            limiter=RateLimiter(settings.rate_limit.per_second, settings.rate_limit.burst),
            sandboxes=sandboxes,
            runtimes=runtimes,
            recovered=False,
        )
        stack.push_async_callback(_drop_left, services)
        stack.push_async_callback(sandboxes.close)
        await sandboxes.open()
        services.recovered = True
        try:
            yield services
        finally:
            services.closing.set()


async def _drop_left(services: Services) -> None:
    for task in services.left:
        task.cancel()
    await asyncio.gather(*services.left, return_exceptions=True)


@contextmanager
def locked(data: DataDir) -> Iterator[None]:
    """One server per data folder. The kernel lets go of the lock when the process ends, however it ends."""
    try:
        descriptor = os.open(data.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        kind = Exhausted if error.errno == errno.ENOSPC else Unavailable
        raise kind(f"cannot use {data.lock}: {error.strerror}", reason="data_dir") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Conflict(
                f"another server{_holder(descriptor)} uses {data.root}",
                reason="data_dir_in_use",
                hint="stop it, or choose another folder with --data-dir or PADDOCK_DATA_DIR",
            ) from None
        # Who holds it is a convenience: a full disk must not keep the server from starting.
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    pid = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    return f" (process {pid})" if pid.isdigit() else ""
