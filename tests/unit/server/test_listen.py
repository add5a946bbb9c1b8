"""The server's socket."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from paddock.config import Settings
from paddock.errors import Conflict, Invalid
from paddock.server.listen import listen, url_of


def settings(**more: Any) -> Settings:
    return Settings(data_dir=Path("/nonexistent"), **{"port": 0} | more)


def test_port_0_is_any_free_one() -> None:
    with closing(listen(settings())) as sock:
        port = sock.getsockname()[1]
        assert port > 0
        assert url_of(sock, "127.0.0.1") == f"http://127.0.0.1:{port}"
        with socket.create_connection(("127.0.0.1", port)):
            pass


def test_a_taken_port_is_told() -> None:
    with closing(listen(settings())) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(Conflict) as caught:
            listen(settings(port=port))
    assert caught.value.reason == "port_in_use"
    assert f"127.0.0.1:{port}" in caught.value.message


@pytest.mark.parametrize("host", ["192.0.2.1", "..", "a" * 70 + ".example"])
def test_a_host_that_is_not_ours_is_told(host: str) -> None:
    with pytest.raises(Invalid) as caught:
        listen(settings(host=host))
    assert caught.value.reason == "bad_host"


def test_a_server_on_all_addresses_is_reached_on_loopback() -> None:
    with closing(listen(settings(host="0.0.0.0"))) as sock:
        assert url_of(sock, "0.0.0.0").startswith("http://127.0.0.1:")
    with closing(listen(settings(host="localhost"))) as sock:
        assert url_of(sock, "localhost").startswith("http://localhost:")
