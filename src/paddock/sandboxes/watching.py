"""Watching over a sandbox's link: taking it, taking it again, and seeing the end of a guest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from paddock.errors import PaddockError
from paddock.guest.dial import Dial
from paddock.guest.link import Guest
from paddock.sandboxes.box import Box

log = structlog.get_logger(__name__)

AGAIN_SECONDS = 0.5


async def watch(
    box: Box, died: Callable[[Box], Awaitable[None]], reattach: Callable[[Box, Guest], Awaitable[None]]
) -> None:
    """Run while the sandbox has a guest. After the loss of its link comes its return, or its end."""
    assert box.instance is not None
    while True:
        if box.guest is not None:
            await box.guest.wait_closed()
        box.guest = None
        box.linked.clear()
        try:
            guest = await _returned(box)
        except (PaddockError, OSError) as error:
            log.warning("guest_cannot_return", sandbox=box.id, error=str(error))
            await asyncio.sleep(AGAIN_SECONDS)
            continue
        if guest is None:
            await died(box)
            return
        try:
            await reattach(box, guest)
        except (PaddockError, OSError) as error:
            log.warning("guest_not_taken_back", sandbox=box.id, error=str(error))
            guest.close()
            continue
        box.guest = guest
        box.linked.set()


async def _returned(box: Box) -> Guest | None:
    instance = box.instance
    assert instance is not None
    dial = Dial(
        instance.socket_folder,
        bytes.fromhex(box.record.secret),
        peer_uid=instance.peer_uid,
        peer_pid=instance.pid or None,
        uid_owner=instance.peer_uid,
    )
    accept = asyncio.ensure_future(dial.accept(None))
    ended = asyncio.ensure_future(box.runtime.wait(instance))
    try:
        await asyncio.wait({accept, ended}, return_when=asyncio.FIRST_COMPLETED)
        return accept.result() if accept.done() else None
    except asyncio.CancelledError:
        if accept.done() and not accept.cancelled() and accept.exception() is None:
            accept.result().close()
        raise
    finally:
        for task in (accept, ended):
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
