"""Every route by its shape: what it is called in the audit log and the metrics, and who may use it.

A request that has no line here goes no further, whatever the router would make of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from paddock.auth import Role

API = "/api/v1"
READS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Rule:
    action: str
    role: Role | None
    """None: open to everybody."""
    audited: bool = False
    stream: bool = False
    """The body is a stream of bytes and has no limit."""


def _reads(action: str, role: Role = Role.OBSERVER) -> Rule:
    return Rule(action, role)


def _writes(action: str, role: Role = Role.OPERATOR, *, stream: bool = False) -> Rule:
    return Rule(action, role, audited=True, stream=stream)


START_EXEC = _writes("exec.start")
CREATE_SANDBOX = _writes("sandbox.create")
OPEN = Rule("open", None)

_ONE = f"{API}/sandboxes/*"
_EXEC = f"{_ONE}/execs/*"
_FILES = f"{_ONE}/files"

RULES: dict[tuple[str, str], Rule] = {
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/docs"): OPEN,
    ("GET", "/metrics"): _reads("metrics.read"),
    ("GET", f"{API}/info"): _reads("info.read"),
    ("GET", f"{API}/events"): _reads("event.read"),
    ("GET", f"{API}/doctor"): _reads("doctor.run", Role.ADMIN),
    ("GET", f"{API}/audit"): _reads("audit.read", Role.ADMIN),
    ("GET", f"{API}/tokens"): _reads("token.list", Role.ADMIN),
    ("POST", f"{API}/tokens"): _writes("token.create", Role.ADMIN),
    ("DELETE", f"{API}/tokens/*"): _writes("token.revoke", Role.ADMIN),
    ("GET", f"{API}/sandboxes"): _reads("sandbox.list"),
    ("POST", f"{API}/sandboxes"): CREATE_SANDBOX,
    ("GET", _ONE): _reads("sandbox.show"),
    ("PATCH", _ONE): _writes("sandbox.update"),
    ("DELETE", _ONE): _writes("sandbox.delete"),
    ("POST", f"{_ONE}/pause"): _writes("sandbox.pause"),
    ("POST", f"{_ONE}/resume"): _writes("sandbox.resume"),
    ("POST", f"{_ONE}/stop"): _writes("sandbox.stop"),
    ("GET", f"{_ONE}/stats"): _reads("sandbox.stats"),
    ("WEBSOCKET", f"{_ONE}/attach"): _writes("exec.start"),
    ("POST", f"{_ONE}/execs"): START_EXEC,
    ("GET", f"{_ONE}/execs"): _reads("exec.list"),
    ("GET", _EXEC): _reads("exec.show"),
    ("GET", f"{_EXEC}/wait"): _reads("exec.wait"),
    ("GET", f"{_EXEC}/output"): _reads("exec.output"),
    ("POST", f"{_EXEC}/cancel"): _writes("exec.cancel"),
    ("POST", f"{_EXEC}/signal"): _writes("exec.signal"),
    ("POST", f"{_EXEC}/stdin"): _writes("exec.stdin", stream=True),
    ("POST", f"{_EXEC}/close-stdin"): _writes("exec.close_stdin"),
    ("POST", f"{_EXEC}/resize"): _writes("exec.resize"),
    ("WEBSOCKET", f"{_EXEC}/attach"): _writes("exec.attach"),
    ("GET", _FILES): _reads("file.read"),
    ("PUT", _FILES): _writes("file.write", stream=True),
    ("DELETE", _FILES): _writes("file.remove"),
    ("GET", f"{_FILES}/stat"): _reads("file.stat"),
    ("GET", f"{_FILES}/list"): _reads("file.list"),
    ("POST", f"{_FILES}/mkdir"): _writes("file.mkdir"),
    ("POST", f"{_FILES}/move"): _writes("file.move"),
    ("GET", f"{_FILES}/watch"): _reads("file.watch"),
    ("GET", f"{_FILES}/archive"): _reads("file.pack"),
    ("PUT", f"{_FILES}/archive"): _writes("file.unpack", stream=True),
    # Reference 5.
    ("GET", "/sandboxes"): _reads("sandbox.list"),
    ("POST", "/sandboxes"): _writes("sandbox.create"),
    ("GET", "/sandboxes/*"): _reads("sandbox.show"),
    ("DELETE", "/sandboxes/*"): _writes("sandbox.delete"),
    ("POST", "/sandboxes/*/exec"): _writes("exec.start"),
    ("GET", "/sandboxes/*/execs/*"): _reads("exec.show"),
    ("POST", "/sandboxes/*/execs/*/cancel"): _writes("exec.cancel"),
    ("WEBSOCKET", "/sandboxes/*/stream"): _reads("exec.output"),
    ("GET", "/sandboxes/*/ingest"): _reads("exec.ingest"),
    ("WEBSOCKET", "/sandboxes/*/ingest"): _reads("exec.ingest"),
}

METHODS: dict[str, list[str]] = {}
for _method, _shape in RULES:
    METHODS.setdefault(_shape, []).append(_method)

_KEPT = {"sandboxes", "execs", "tokens"}
"""After these words comes an id."""


@dataclass(frozen=True, slots=True)
class Place:
    """A path, taken apart."""

    shape: str
    target: str


def place(path: str) -> Place:
    parts = path.split("/")
    ids: list[str] = []
    for index in range(2, len(parts)):
        # An id may be any word, "execs" too: what follows an id is never one.
        if parts[index - 1] in _KEPT and parts[index]:
            ids.append(parts[index])
            parts[index] = "*"
    return Place("/".join(parts), "/".join(ids))


def rule_for(method: str, shape: str) -> Rule | None:
    return RULES.get(("GET" if method == "HEAD" else method, shape))


def allowed_methods(shape: str) -> list[str]:
    return sorted(method for method in METHODS.get(shape, ()) if method != "WEBSOCKET")
