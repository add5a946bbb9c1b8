"""docs/CONFIGURATION.md names every setting with its variable and default, and none that is not there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from paddock.config import Settings, load

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "CONFIGURATION.md").read_text()
ROW = re.compile(r"^\| `([a-z_.]+)` \| ([^|]+) \| ([^|]+) \| `(PADDOCK_[A-Z_]+)` \|", re.MULTILINE)
ROWS = {match[1]: match for match in ROW.finditer(TEXT)}


def settings(model: type[BaseModel] = Settings, before: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from settings(field.annotation, f"{before}{name}.")
        else:
            yield f"{before}{name}", field


NAMES = [name for name, _ in settings()]


@pytest.mark.parametrize("name", NAMES)
def test_each_setting_is_described(name: str) -> None:
    assert name in ROWS
    assert ROWS[name][4] == "PADDOCK_" + name.replace(".", "_").upper()


def test_no_other_setting_is_described() -> None:
    assert set(ROWS) == set(NAMES)


@pytest.mark.parametrize(("name", "field"), [pair for pair in settings() if pair[1].default_factory is None])
def test_the_default_is_the_real_one(name: str, field: FieldInfo) -> None:
    written = re.fullmatch(r"`(.*)`", ROWS[name][3].strip())
    assert written is not None, f"{name}: write the default as `code`"
    assert value_of(load({name: parsed(written[1])}, {"PADDOCK_CONFIG": ""}), name) == field.default


def parsed(text: str) -> Any:
    """The default is written as a configuration file would have it."""
    return tomllib.loads(f"value = {text}")["value"]


def value_of(of: Settings, name: str) -> Any:
    value: Any = of
    for part in name.split("."):
        value = getattr(value, part)
    return value


def test_the_example_is_a_valid_configuration(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    assert example is not None
    path = tmp_path / "config.toml"
    path.write_text(example[1])
    loaded = load(environment={"PADDOCK_CONFIG": str(path)})
    assert loaded != load(environment={"HOME": str(tmp_path)})
