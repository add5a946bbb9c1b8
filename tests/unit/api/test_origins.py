"""Host and Origin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddock.api.origins import Origins
from paddock.config import Settings


def origins(**settings: Any) -> Origins:
    return Origins(Settings(data_dir=Path("/nonexistent"), **settings))


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8122", "127.0.0.1:8122", "[::1]:8122", "10.1.2.3", "a.localhost", "localhost."],
)
def test_addresses_and_our_own_names_pass(host: str) -> None:
    assert origins().host_passes(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8122",
        "127.0.0.1.evil.example",
        "localhost:port",
        "a@localhost",
        "x/localhost",
        "notlocalhost",
        "[::1",
    ],
)
def test_other_names_do_not(host: str) -> None:
    assert not origins().host_passes(host)


def test_settings_add_names() -> None:
    known = origins(allowed_hosts=("box.example", ".lab.example"))
    assert known.host_passes("box.example:443")
    assert known.host_passes("a.lab.example")
    assert not known.host_passes("lab.example.evil")
    assert not known.host_passes("evilbox.example")
    assert origins(allowed_hosts=("*",)).host_passes("anything.example")
    assert origins(host="box.example").host_passes("box.example")


@pytest.mark.parametrize(
    ("origin", "host", "passes"),
    [
        ("http://localhost:8122", "localhost:8122", True),
        ("https://box.example", "box.example", True),
        ("https://box.example", "box.example:443", True),
        ("http://localhost:3000", "localhost:8122", False),
        ("http://evil.example", "localhost:8122", False),
        ("null", "localhost:8122", False),
        ("", "localhost:8122", False),
        ("http://localhost:bad", "localhost:8122", False),
        ("file://", "localhost:8122", False),
    ],
)
def test_only_the_same_origin_passes(origin: str, host: str, passes: bool) -> None:
    assert origins().origin_passes(origin, host) is passes


def test_settings_add_origins() -> None:
    known = origins(allowed_origins=("https://dash.example/",))
    assert known.origin_passes("https://dash.example", "localhost:8122")
    assert known.is_foreign_but_allowed("https://dash.example")
    assert not known.origin_passes("http://dash.example", "localhost:8122")
