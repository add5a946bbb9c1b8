"""What is written on the command line as values: pairs, sizes, durations, JSON, a whole request."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from paddock.errors import Invalid

NONE_WORDS = frozenset({"none", "off", "never"})


def pairs(items: Iterable[str] | None, what: str) -> dict[str, str]:
    found = {}
    for item in items or ():
        key, equals, value = item.partition("=")
        if not key or not equals:
            raise Invalid(f"{item!r} is not a {what}", reason="usage", hint="write it as KEY=VALUE")
        found[key] = value
    return found


def environment(items: Iterable[str] | None, here: dict[str, str]) -> dict[str, str]:
    """Like docker: `K=V` sets, `K` alone passes the caller's own on when there is one."""
    given = []
    for item in items or ():
        if "=" in item or not item:
            given.append(item)
        elif item in here:
            given.append(f"{item}={here[item]}")
    return pairs(given, "variable")


def size(text: str | None) -> int | None:
    if text is None:
        return None
    from paddock.config.sizes import parse_size

    return parse_size(text)


def duration(text: str | None) -> float | None:
    if text is None:
        return None
    from paddock.config.sizes import parse_duration

    return parse_duration(text)


def limit(text: str | None, parse: Callable[[str], Any]) -> Any:
    """A value, or None where a word says that the rule is taken away."""
    return None if text is None or text.lower() in NONE_WORDS else parse(text)


def json_object(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    import json

    try:
        value = json.loads(text)
    except ValueError as error:
        raise Invalid(f"the metadata is not JSON: {error}", reason="usage") from None
    if not isinstance(value, dict):
        raise Invalid(
            "the metadata is not a JSON object", reason="usage", hint='write it as {"key": "value"}'
        )
    return value


def given(**fields: Any) -> dict[str, Any]:
    """Those that have a value: the server has its own defaults for the others."""
    return {name: value for name, value in fields.items() if value not in (None, {}, [])}


def creation(
    *,
    name: str | None,
    tenant: str | None,
    template: str | None,
    runtime: str | None,
    image: str | None,
    label: list[str] | None,
    env: list[str] | None,
    memory: str | None,
    cpus: float | None,
    processes: int | None,
    disk: str | None,
    ttl: str | None,
    idle_timeout: str | None,
    auto_delete: str | None,
    strict: bool,
    metadata: str | None,
) -> dict[str, Any]:
    """The request for a new sandbox."""
    return given(
        name=name,
        tenant=tenant,
        template=template,
        runtime=runtime,
        image=image,
        labels=pairs(label, "label"),
        environment=environment(env, dict(os.environ)),
        limits=given(memory=size(memory), cpus=cpus, processes=processes, disk=size(disk)),
        ttl=duration(ttl),
        idle_timeout=duration(idle_timeout),
        auto_delete=duration(auto_delete),
        strict=strict or None,
        metadata=json_object(metadata),
    )
