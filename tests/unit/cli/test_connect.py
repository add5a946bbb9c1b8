from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.cli import connect
from paddock.cli.context import current
from paddock.config.settings import default_data_dir
from paddock.errors import Denied, Unavailable


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("PADDOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    current.reset()
    yield
    current.reset()


class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def healthy() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def publish(folder: Path, url: str, pid: int) -> None:
    (folder / "server.json").write_text(json.dumps({"url": url, "pid": pid, "version": "1"}))


def test_the_data_folder_is_the_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert connect.data_dir() == default_data_dir()
    monkeypatch.setenv("PADDOCK_DATA_DIR", str(tmp_path / "env"))
    assert connect.data_dir() == tmp_path / "env"
    current.data_dir = tmp_path / "flag"
    assert connect.data_dir() == tmp_path / "flag"


def test_an_ordinary_user_has_a_folder_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/somebody")
    for base in (None, "/data"):
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)
        if base:
            monkeypatch.setenv("XDG_DATA_HOME", base)
        assert connect.data_dir() == default_data_dir()


def test_a_configuration_file_may_name_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config" / "paddock" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'data_dir = "{tmp_path}/from-file"\n')
    assert connect.data_dir() == tmp_path / "from-file"


def test_a_local_server_is_found_with_its_token(tmp_path: Path, healthy: str) -> None:
    publish(tmp_path, healthy, os.getpid())
    (tmp_path / "admin-token").write_text("secret\n")
    current.data_dir = tmp_path
    address = connect.address(start=False)
    assert (address.url, address.token) == (healthy, "secret")


def test_a_flag_is_stronger_than_the_file(tmp_path: Path, healthy: str) -> None:
    publish(tmp_path, healthy, os.getpid())
    (tmp_path / "admin-token").write_text("secret\n")
    current.data_dir, current.token = tmp_path, "mine"
    assert connect.address(start=False).token == "mine"


def test_a_named_server_that_is_the_local_one_gets_its_token(tmp_path: Path, healthy: str) -> None:
    publish(tmp_path, healthy, os.getpid())
    (tmp_path / "admin-token").write_text("secret\n")
    current.data_dir, current.url = tmp_path, f"{healthy}/"
    assert connect.address().token == "secret"
    current.url = "http://elsewhere.example"
    assert connect.address().token is None


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"url": 1}', '{"url": "http://127.0.0.1:1", "pid": "x"}']
)
def test_a_broken_note_is_no_server(tmp_path: Path, content: str) -> None:
    (tmp_path / "server.json").write_text(content)
    assert connect.find_local(tmp_path) is None


def test_a_server_whose_process_is_gone_is_none(tmp_path: Path, healthy: str) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    publish(tmp_path, healthy, child)
    assert connect.find_local(tmp_path) is None


def test_a_server_that_does_not_answer_is_none(tmp_path: Path) -> None:
    publish(tmp_path, "http://127.0.0.1:1", os.getpid())
    assert connect.find_local(tmp_path) is None
    current.data_dir = tmp_path
    with pytest.raises(Unavailable) as caught:
        connect.address(start=False)
    assert caught.value.reason == "no_server"


def test_a_folder_of_somebody_else_is_a_useful_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: object, **__: object) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    current.data_dir = tmp_path
    with pytest.raises(Denied) as caught:
        connect.address(start=False)
    assert caught.value.exit_code == 4
    assert "PADDOCK_TOKEN" in (caught.value.hint or "")
