from __future__ import annotations

from pathlib import Path

import pytest

from paddock.config import load
from paddock.errors import Invalid


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def environment(config: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(config.parent), "PADDOCK_CONFIG": str(config), **more}


def test_flags_win_over_environment_over_file_over_defaults(config: Path) -> None:
    config.write_text('port = 1\nlog_level = "debug"\nttl = "1h"\n[limits]\nmemory = "1g"\ncpus = 2\n')
    settings = load(
        {"port": 3, "host": None},
        environment(config, PADDOCK_PORT="2", PADDOCK_LIMITS_MEMORY="2GiB", PADDOCK_TTL="none"),
    )
    assert settings.port == 3
    assert settings.limits.memory == 2 << 30
    assert settings.limits.cpus == 2
    assert settings.ttl is None
    assert settings.log_level == "debug"
    assert settings.host == "127.0.0.1"


def test_the_file_in_the_users_folder_is_found(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "paddock"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("port = 77")
    assert load(environment={"HOME": str(tmp_path)}).port == 77


def test_lists_and_flags_from_the_environment(config: Path) -> None:
    config.write_text("")
    settings = load(
        environment=environment(
            config,
            PADDOCK_ALLOWED_HOSTS="a.example, b.example",
            PADDOCK_STRICT="true",
            PADDOCK_RATE_LIMIT_BURST="5",
        )
    )
    assert settings.allowed_hosts == ("a.example", "b.example")
    assert settings.strict
    assert settings.rate_limit.burst == 5


@pytest.mark.parametrize(
    ("toml", "more", "flags", "key", "near"),
    [
        ("prot = 1", {}, {}, "prot", "port"),
        ("[limits]\nmemroy = 1", {}, {}, "limits.memroy", "limits.memory"),
        ("", {"PADDOCK_DATADIR": "x"}, {}, "PADDOCK_DATADIR", "PADDOCK_DATA_DIR"),
        ("", {}, {"hots": "x"}, "hots", "host"),
    ],
)
def test_an_unknown_key_is_named_with_its_neighbour(
    config: Path, toml: str, more: dict[str, str], flags: dict[str, str], key: str, near: str
) -> None:
    config.write_text(toml)
    with pytest.raises(Invalid) as caught:
        load(flags, environment(config, **more))
    assert caught.value.reason == "unknown_setting"
    assert key in caught.value.message
    assert near in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [
        ("PADDOCK_PORT", "99999", "port"),
        ("PADDOCK_LIMITS_MEMORY", "lots", "limits.memory"),
        ("PADDOCK_IDLE_TIMEOUT", "soon", "idle_timeout"),
        ("PADDOCK_NO_AUTH", "perhaps", "no_auth"),
        ("PADDOCK_LOG_FORMAT", "xml", "log_format"),
    ],
)
def test_a_bad_value_is_reported_with_its_origin(config: Path, variable: str, value: str, name: str) -> None:
    config.write_text("")
    with pytest.raises(Invalid) as caught:
        load(environment=environment(config, **{variable: value}))
    assert caught.value.message.startswith(f"{name} (from {variable})")


def test_variables_of_the_client_are_no_settings(config: Path) -> None:
    config.write_text("")
    load(environment=environment(config, PADDOCK_TOKEN="t", PADDOCK_URL="u", PADDOCK_TEST_X="1"))


def test_a_file_that_is_named_must_exist_and_be_toml(config: Path) -> None:
    with pytest.raises(Invalid, match="cannot read"):
        load(environment=environment(config))
    config.write_text("port = [")
    with pytest.raises(Invalid, match="not valid TOML"):
        load(environment=environment(config))
    config.write_text("limits = 3")
    with pytest.raises(Invalid, match="limits"):
        load(environment=environment(config))


def test_no_auth_beyond_loopback_is_refused_plainly(config: Path) -> None:
    config.write_text("no_auth = true")
    with pytest.raises(Invalid, match="loopback"):
        load({"host": "0.0.0.0"}, environment(config))
