"""Takes back a guest that lost its link.

The socket exists only while its guest has to come back. Whoever else finds it is a stranger: the file's owner
and mode, the kernel's word on who connects, and the secret all have to agree.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import socket
import struct
from pathlib import Path

import structlog

from paddock import errors
from paddock.guest import wire
from paddock.guest.link import Guest

log = structlog.get_logger(__name__)

NAME = "guest.sock"
MOST_WAITING = 8
HANDSHAKE_SECONDS = 5.0
INVENTORY_SECONDS = 30.0
_CREDENTIALS = struct.Struct("3i")
_GREETING_BYTES = wire.HEADER.size + wire.GUEST_LENGTHS[wire.Type.DIAL][0]


class Dial:
    """`folder` is the host's path of the guest's run folder; `uid_owner` shall own the socket (None: us)."""

    def __init__(
        self, folder: Path, secret: bytes, *, peer_uid: int, peer_pid: int | None, uid_owner: int | None
    ) -> None:
        self._folder = folder
        self._secret = secret
        self._peer_uid = peer_uid
        self._peer_pid = peer_pid
        self._uid_owner = uid_owner

    async def accept(self, timeout: float | None) -> Guest:
        """Wait for the guest, prove it, take its inventory. May be cancelled, and repeated."""
        try:
            async with asyncio.timeout(timeout):
                return await self._accept()
        except TimeoutError:
            raise errors.Timeout(
                f"the guest did not come back within {timeout} s",
                reason="guest_absent",
                hint="Stop the sandbox and start it again.",
            ) from None

    async def _accept(self) -> Guest:
        try:
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _cannot_listen(error) from error
        try:
            listener, inode = self._listen(folder)
            try:
                return await self._first_genuine(listener)
            finally:
                listener.close()
                _unlink(folder, inode)
        finally:
            os.close(folder)

    def _listen(self, folder: int) -> tuple[socket.socket, int]:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        hidden = f".{NAME}.{secrets.token_hex(8)}"
        try:
            listener.setblocking(False)
            # The file gets the socket's own mode: it is never open to others, not even for a moment.
            os.fchmod(listener.fileno(), 0o600)
            # Through the descriptor: a socket's address may have 107 bytes, a path has more.
            listener.bind(f"/proc/self/fd/{folder}/{hidden}")
            if self._uid_owner is not None:
                os.chown(hidden, self._uid_owner, self._uid_owner, dir_fd=folder, follow_symlinks=False)
            listener.listen(MOST_WAITING)
            inode = os.stat(hidden, dir_fd=folder, follow_symlinks=False).st_ino
            os.rename(hidden, NAME, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            listener.close()
            with contextlib.suppress(OSError):
                os.unlink(hidden, dir_fd=folder)
            raise errors.Unavailable(
                f"cannot listen for the guest: {error}", reason="guest_socket"
            ) from error
        return listener, inode

    async def _first_genuine(self, listener: socket.socket) -> Guest:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Guest] = loop.create_future()
        waiting: set[asyncio.Task[None]] = set()

        def knock() -> None:
            try:
                sock, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if not found.done():
                    found.set_exception(_cannot_listen(error))
                return
            if found.done() or len(waiting) >= MOST_WAITING or not self._is_expected(sock):
                sock.close()
                return
            task = loop.create_task(self._prove(sock, found))
            waiting.add(task)
            task.add_done_callback(waiting.discard)

        loop.add_reader(listener, knock)
        try:
            try:
                return await found
            finally:
                loop.remove_reader(listener)
                for task in waiting:
                    task.cancel()
                if waiting:
                    await asyncio.wait(waiting)
        except BaseException:
            # Cancelled when the guest was there already: nobody will take it.
            if found.done() and not found.cancelled() and found.exception() is None:
                found.result().close()
            raise

    def _is_expected(self, sock: socket.socket) -> bool:
        pid, uid, _ = _CREDENTIALS.unpack(
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if uid == self._peer_uid and self._peer_pid in (None, pid):
            return True
        log.warning("stranger_on_guest_socket", folder=str(self._folder), pid=pid, uid=uid)
        return False

    async def _prove(self, sock: socket.socket, found: asyncio.Future[Guest]) -> None:
        """Give `found` the guest behind a connection, or close it."""
        try:
            greeting = await self._greeting(sock)
        except (TimeoutError, OSError, wire.GuestViolation) as error:
            sock.close()
            log.warning("stranger_on_guest_socket", folder=str(self._folder), detail=str(error))
            return
        except BaseException:
            sock.close()
            raise
        try:
            guest = await Guest.welcome(sock, greeting, timeout=INVENTORY_SECONDS)
        except errors.PaddockError as error:
            log.warning("guest_did_not_return", folder=str(self._folder), detail=error.message)
            return
        if found.done():
            guest.close()
        else:
            found.set_result(guest)

    async def _greeting(self, sock: socket.socket) -> wire.Greeting:
        sock.setblocking(False)
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            data = await _exactly(sock, _GREETING_BYTES)
        size, channel, kind, flags, zero = wire.HEADER.unpack_from(data)
        if (size, channel, kind, flags, zero) != (len(data) - wire.HEADER.size, 0, wire.Type.DIAL, 0, 0):
            raise wire.GuestViolation("a link that does not begin with DIAL")
        greeting = wire.Greeting.unpack(data[wire.HEADER.size :])
        if not hmac.compare_digest(greeting.secret, self._secret):
            raise wire.GuestViolation("a wrong secret", reason="stranger")
        if greeting.version != wire.VERSION:
            raise wire.GuestViolation(f"the guest speaks version {greeting.version}", reason="guest_version")
        return greeting


async def _exactly(sock: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < size:
        more = await loop.sock_recv(sock, size - len(data))
        if not more:
            raise ConnectionResetError("closed before it said who it is")
        data += more
    return data


def _cannot_listen(error: OSError) -> errors.Unavailable:
    return errors.Unavailable(f"cannot listen for the guest: {error}", reason="guest_socket")


def _unlink(folder: int, inode: int) -> None:
    """Remove the socket, unless another server has put its own there."""
    with contextlib.suppress(OSError):
        if os.stat(NAME, dir_fd=folder, follow_symlinks=False).st_ino == inode:
            os.unlink(NAME, dir_fd=folder)
