"""Which server to ask: the one named, or the local one, which is started when none runs."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.cli.context import current
from paddock.cli.report import note
from paddock.errors import Denied, Unavailable

if TYPE_CHECKING:
    from paddock.client import Address, Client

PROBE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Local:
    """A running local server, as its data folder tells."""

    url: str
    pid: int
    version: str | None = None


def client() -> Client:
    from paddock.client import Client

    return Client(address())


def address(*, start: bool = True) -> Address:
    from paddock.client import Address

    token = current.server_token
    if current.server_url is not None:
        url = current.server_url
        return Address.parse(url, token or _token_of_local(url))
    folder = data_dir()
    server = find_local(folder)
    if server is None:
        if not start:
            raise Unavailable(
                f"no server runs on {folder}", reason="no_server", hint="start one with: paddock up"
            )
        from paddock.cli.launch import start_detached

        server = start_detached(folder)
        note(f"started a server on {server.url}")
    return Address.parse(server.url, token or read_token(folder))


def data_dir() -> Path:
    """The server's own rule, without loading its settings where nothing but the default is in question."""
    if current.data_dir is not None:
        return current.data_dir.expanduser().absolute()
    if named := os.environ.get("PADDOCK_DATA_DIR"):
        return Path(named).expanduser().absolute()
    if _has_configuration():
        from paddock.config import load

        return load().data_dir
    if os.geteuid() == 0:
        return Path("/var/lib/paddock")
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base, "paddock").absolute()


def _has_configuration() -> bool:
    home = os.environ.get("XDG_CONFIG_HOME") or Path(os.environ.get("HOME", "/nonexistent"), ".config")
    candidates = (Path(home, "paddock", "config.toml"), Path("/etc/paddock/config.toml"))
    return bool(os.environ.get("PADDOCK_CONFIG")) or any(path.is_file() for path in candidates)


def find_local(folder: Path) -> Local | None:
    """The server of a data folder, if it runs and answers."""
    server = read_server_json(folder)
    return server if server is not None and is_alive(server.pid) and answers(server.url) else None


def read_server_json(folder: Path) -> Local | None:
    try:
        told = json.loads((folder / "server.json").read_bytes())
        return Local(str(told["url"]), int(told["pid"]), told.get("version"))
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise _unreadable(folder, error) from error
    except (ValueError, KeyError, TypeError, NotADirectoryError):
        return None


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def answers(url: str) -> bool:
    import http.client
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PROBE_SECONDS)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def read_token(folder: Path) -> str | None:
    """The admin token; None for a server that asks for none."""
    try:
        return (folder / "admin-token").read_text().strip() or None
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise _unreadable(folder, error) from error


def _token_of_local(url: str) -> str | None:
    """A local server named by its address is still the local one."""
    try:
        folder = data_dir()
        server = read_server_json(folder)
        return (
            read_token(folder) if server is not None and server.url.rstrip("/") == url.rstrip("/") else None
        )
    except Denied:
        return None


def _unreadable(folder: Path, error: OSError) -> Denied:
    return Denied(
        f"cannot read {error.filename}: {error.strerror}",
        reason="data_dir",
        hint=(
            f"{folder} belongs to another user: sign in with PADDOCK_URL and PADDOCK_TOKEN, "
            "or choose a folder of your own with --data-dir"
        ),
    )
