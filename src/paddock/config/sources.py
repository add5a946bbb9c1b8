"""Where settings come from: flags, then PADDOCK_* in the environment, then a TOML file, then the defaults."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from paddock.config.settings import Settings
from paddock.errors import Invalid

PREFIX = "PADDOCK_"
# Read by the command line and the client, or by the tests and benchmarks: no settings of the server.
_FOREIGN = frozenset({"PADDOCK_CONFIG", "PADDOCK_URL", "PADDOCK_TOKEN"})
_FOREIGN_PREFIXES = ("PADDOCK_TEST_", "PADDOCK_BENCH_")


@dataclass(frozen=True, slots=True)
class _Given:
    value: Any
    origin: str


def load(flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """The settings in force.

    `flags` are by name, dotted inside a section ("limits.memory"); a flag that is None was not given.
    """
    environment = os.environ if environment is None else environment
    given = _from_file(_config_file(environment))
    given |= _from_environment(environment)
    given |= _from_flags(flags or {})
    try:
        return Settings.model_validate(_nest(given))
    except ValidationError as error:
        raise _explain(error, given) from None


def _known(model: type[BaseModel] = Settings, before: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    names: list[tuple[str, ...]] = []
    for name, field in model.model_fields.items():
        path = (*before, name)
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names += _known(kind, path)
        else:
            names.append(path)
    return names


_SETTINGS = {".".join(path): path for path in _known()}
_VARIABLES = {PREFIX + "_".join(path).upper(): name for name, path in _SETTINGS.items()}


def _config_file(environment: Mapping[str, str]) -> Path | None:
    if named := environment.get("PADDOCK_CONFIG"):
        return Path(named).expanduser()
    home = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "/nonexistent"), ".config")
    for path in (Path(home, "paddock", "config.toml"), Path("/etc/paddock/config.toml")):
        if path.is_file():
            return path
    return None


def _from_file(path: Path | None) -> dict[str, _Given]:
    if path is None:
        return {}
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(
            f"cannot read the configuration {path}: {error}", reason="config", hint="check PADDOCK_CONFIG"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise Invalid(
            f"{path} is not valid TOML: {error}", reason="config", hint="correct the file"
        ) from error
    given = {name: _Given(value, str(path)) for name, value in _flatten(content)}
    for name in given:
        _require_known(name, _SETTINGS, str(path))
    return given


def _flatten(table: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in table.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping) and name not in _SETTINGS:
            yield from _flatten(value, f"{name}.")
        else:
            yield name, value


def _from_environment(environment: Mapping[str, str]) -> dict[str, _Given]:
    given = {}
    for variable, value in environment.items():
        if not variable.startswith(PREFIX) or variable in _FOREIGN or variable.startswith(_FOREIGN_PREFIXES):
            continue
        _require_known(variable, _VARIABLES, "the environment")
        given[_VARIABLES[variable]] = _Given(value, variable)
    return given


def _from_flags(flags: Mapping[str, Any]) -> dict[str, _Given]:
    given = {name: _Given(value, f"--{name}") for name, value in flags.items() if value is not None}
    for name in given:
        _require_known(name, _SETTINGS, "the flags")
    return given


def _require_known(name: str, known: Iterable[str], origin: str) -> None:
    names = list(known)
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known settings: {', '.join(names)}"
    raise Invalid(f"unknown setting {name} in {origin}", reason="unknown_setting", hint=hint)


def _nest(given: Mapping[str, _Given]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, item in given.items():
        *sections, leaf = _SETTINGS[name]
        table = nested
        for section in sections:
            table = table.setdefault(section, {})
        table[leaf] = item.value
    return nested


def _explain(error: ValidationError, given: Mapping[str, _Given]) -> Invalid:
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    name = next((n for n, path in _SETTINGS.items() if first["loc"][: len(path)] == path), None)
    if name is None:
        return Invalid(message, reason="config", hint="see docs/CONFIGURATION.md")
    origin = f" (from {given[name].origin})" if name in given else ""
    return Invalid(f"{name}{origin}: {message}", reason="config", hint="see docs/CONFIGURATION.md")
