"""The server's own socket, opened before anything else so that a taken port is told at once."""

from __future__ import annotations

import errno
import socket

from paddock.config import Settings
from paddock.errors import Conflict, Invalid

BACKLOG = 2048


def listen(settings: Settings) -> socket.socket:
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError) as error:
        raise Invalid(
            f"cannot listen on {settings.host!r}: {error}", reason="bad_host", hint="choose another --host"
        ) from error
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise _refused(settings, error) from error
    sock.setblocking(False)
    return sock


def _refused(settings: Settings, error: OSError) -> Conflict | Invalid:
    where = f"{settings.host}:{settings.port}"
    if error.errno == errno.EADDRINUSE:
        return Conflict(
            f"{where} is taken by another program",
            reason="port_in_use",
            hint="stop it, or choose another port with --port (0: any free one)",
        )
    hint = "ports below 1024 need root" if error.errno == errno.EACCES else "choose another --host or --port"
    return Invalid(f"cannot listen on {where}: {error.strerror}", reason="bad_host", hint=hint)


def url_of(sock: socket.socket, host: str) -> str:
    """An address that a client on this machine can use."""
    address, port = sock.getsockname()[:2]
    if host == "localhost":
        shown = host
    elif address in ("0.0.0.0", "::"):
        shown = "127.0.0.1" if address == "0.0.0.0" else "[::1]"
    else:
        shown = f"[{address}]" if ":" in address else address
    return f"http://{shown}:{port}"
