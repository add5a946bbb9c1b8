"""Every route has a rule, and every rule a route."""

from __future__ import annotations

import itertools
import re

import pytest
from fastapi.routing import APIRoute, APIWebSocketRoute

from paddock.api.access import API, RULES, allowed_methods, place, rule_for
from paddock.api.app import ROUTERS
from paddock.auth import Role


def routes() -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for route in itertools.chain.from_iterable(router.routes for router in ROUTERS):
        assert isinstance(route, APIRoute | APIWebSocketRoute)
        shape = re.sub(r"\{[^}]*\}", "*", route.path)
        methods = route.methods - {"HEAD"} if isinstance(route, APIRoute) else {"WEBSOCKET"}
        found.update((method, shape) for method in methods)
    return found


def test_routes_and_rules_are_the_same() -> None:
    assert routes() == set(RULES)


@pytest.mark.parametrize(
    ("path", "shape", "target"),
    [
        (f"{API}/sandboxes", f"{API}/sandboxes", ""),
        (f"{API}/sandboxes/a", f"{API}/sandboxes/*", "a"),
        (f"{API}/sandboxes/execs/execs/execs/wait", f"{API}/sandboxes/*/execs/*/wait", "execs/execs"),
        (f"{API}/sandboxes/tokens/files", f"{API}/sandboxes/*/files", "tokens"),
        (f"{API}/tokens/t1", f"{API}/tokens/*", "t1"),
        ("/sandboxes/a/execs/e/cancel", "/sandboxes/*/execs/*/cancel", "a/e"),
        ("/healthz", "/healthz", ""),
    ],
)
def test_a_path_is_taken_apart(path: str, shape: str, target: str) -> None:
    assert (place(path).shape, place(path).target) == (shape, target)


@pytest.mark.parametrize(
    "path",
    [
        f"{API}/tokens\n",
        f"{API}/tokens/",
        f"{API}//tokens",
        f"{API}/tokens/a/b",
        "//sandboxes",
        f"{API}/TOKENS",
        "",
    ],
)
def test_what_only_looks_like_a_route_has_no_rule(path: str) -> None:
    assert rule_for("GET", place(path).shape) is None


def test_reading_is_for_observers_and_the_rest_is_not() -> None:
    for (method, shape), rule in RULES.items():
        if rule.role is None:
            assert shape in ("/healthz", "/readyz", "/openapi.json", "/docs")
        elif any(word in shape for word in ("tokens", "audit", "doctor")):
            assert rule.role is Role.ADMIN
        elif method == "GET":
            assert rule.role is Role.OBSERVER
        elif method != "WEBSOCKET":
            assert rule.role is Role.OPERATOR
            assert rule.audited


def test_head_is_get_and_websockets_are_no_method() -> None:
    assert rule_for("HEAD", f"{API}/sandboxes/*/files") is rule_for("GET", f"{API}/sandboxes/*/files")
    assert allowed_methods(f"{API}/sandboxes") == ["GET", "POST"]
    assert allowed_methods(f"{API}/sandboxes/*/attach") == []
