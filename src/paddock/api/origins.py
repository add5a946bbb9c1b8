"""Whether a browser may talk to this server: the Host and Origin headers.

A page on another site can point its own name at 127.0.0.1 (DNS rebinding) and read the answers as its own;
but its requests then carry that name as Host. An address in Host cannot be such a name, so addresses pass.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import SplitResult, urlsplit

from paddock.config import Settings, is_loopback

_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


class Origins:
    def __init__(self, settings: Settings) -> None:
        self._any_host = "*" in settings.allowed_hosts
        self._hosts = {"localhost", settings.host.lower().strip("[]")}
        self._hosts |= {name.lower() for name in settings.allowed_hosts if not name.startswith(".")}
        self._suffixes = tuple(name.lower() for name in settings.allowed_hosts if name.startswith("."))
        if not is_loopback(settings.host):
            self._hosts.add(socket.gethostname().lower())
        self._any_origin = "*" in settings.allowed_origins
        self._origins = {origin.lower().rstrip("/") for origin in settings.allowed_origins}
        self._passed: set[str] = set()

    def host_passes(self, host: str) -> bool:
        if host in self._passed:
            return True
        passes = self._any_host or self._is_known(host.lower())
        if passes and len(self._passed) < 1000:
            self._passed.add(host)
        return passes

    def _is_known(self, host: str) -> bool:
        name = host_name(host)
        if name is None:
            return False
        if name in self._hosts or host in self._hosts or name.endswith(".localhost"):
            return True
        return _is_address(name) or (bool(self._suffixes) and name.endswith(self._suffixes))

    def origin_passes(self, origin: str, host: str) -> bool:
        """Same origin, or one that the settings name. TLS may end before us: schemes are not compared."""
        if self.is_foreign_but_allowed(origin):
            return True
        theirs = _place(origin)
        return theirs is not None and theirs == _place(f"{_scheme(origin)}://{host}")

    def is_foreign_but_allowed(self, origin: str) -> bool:
        return self._any_origin or origin.lower().rstrip("/") in self._origins


def host_name(host: str) -> str | None:
    try:
        parsed = _split(f"//{host}")
        _ = parsed.port
    except ValueError:
        return None
    if parsed.path or parsed.query or parsed.fragment or parsed.username is not None:
        return None
    return parsed.hostname.rstrip(".") if parsed.hostname else None


def _split(url: str) -> SplitResult:
    """Python up to 3.11 takes `[::1].somewhere.else` for the address in its brackets."""
    parsed = urlsplit(url)
    if (behind := parsed.netloc.partition("]")[2]) and not behind.startswith(":"):
        raise ValueError("something stands behind the brackets of an address")
    return parsed


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _scheme(origin: str) -> str:
    return origin.partition("://")[0].lower()


def _place(origin: str) -> tuple[str, int] | None:
    try:
        parsed = _split(origin)
        port = parsed.port or _DEFAULT_PORTS.get(parsed.scheme)
    except ValueError:
        return None
    return (parsed.hostname, port) if parsed.hostname and port else None
