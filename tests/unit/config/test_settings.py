from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from paddock.config import Settings, is_loopback
from paddock.config.settings import default_data_dir


def test_the_defaults_are_closed_and_local() -> None:
    settings = Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8122)
    assert not settings.no_auth
    assert settings.limits.memory == 4 << 30
    assert settings.exec_timeout is None


def test_the_database_lies_in_the_data_folder(tmp_path: Path) -> None:
    assert Settings(data_dir=tmp_path).database_url == f"sqlite:///{tmp_path}/private/paddock.db"
    assert Settings(data_dir=tmp_path, database_url="postgresql://x/y").database_url == "postgresql://x/y"


def test_a_relative_data_folder_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings(data_dir=Path("data")).data_dir == tmp_path / "data"


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.4", "::", "example.com", ""])
def test_no_auth_is_refused_beyond_loopback(host: str) -> None:
    with pytest.raises(ValidationError, match="loopback"):
        Settings(host=host, no_auth=True)
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "::1", "[::1]"])
def test_no_auth_on_loopback(host: str) -> None:
    assert Settings(host=host, no_auth=True).no_auth


def test_an_ordinary_user_gets_a_folder_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_data_dir() == Path("/data/paddock")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_data_dir() == Path("/home/someone/.local/share/paddock")


def test_root_gets_the_system_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert default_data_dir() == Path("/var/lib/paddock")
