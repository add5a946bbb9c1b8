"""Every call of the API as a method. Answers are the server's own dictionaries, typed by `shapes`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from paddock.client.shapes import Entry, Exec, ExecRequest, Listing, Sandbox, Stats
from paddock.client.sse import ServerEvent, parse
from paddock.client.transport import Address, Answer, Query, Transport, error_told
from paddock.client.watch import followed
from paddock.errors import Timeout

LONG_POLL = 30.0
QUIET_SECONDS = 60.0
"""Live streams have heartbeats: one that is silent for this long is broken."""


def _sandbox(ref: str) -> str:
    return f"/sandboxes/{quote(ref, safe='')}"


def _exec(ref: str, exec_id: str) -> str:
    return f"{_sandbox(ref)}/execs/{quote(exec_id, safe='')}"


class Client:
    def __init__(self, url: str | Address, token: str | None = None) -> None:
        self.address = url if isinstance(url, Address) else Address.parse(url, token)
        self._http = Transport(self.address)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Sandboxes

    def create(self, request: Mapping[str, Any]) -> Sandbox:
        return cast(Sandbox, self._http.call("POST", "/sandboxes", body=dict(request)))

    def sandboxes(
        self,
        *,
        states: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        tenant: str | None = None,
        page: int = 500,
    ) -> list[Sandbox]:
        """All that match, oldest first, however many pages the server makes of them."""
        found: list[Sandbox] = []
        after: str | None = None
        while True:
            query: Query = {
                "state": list(states),
                "label": [f"{key}={value}" for key, value in (labels or {}).items()],
                "tenant": tenant,
                "limit": page,
                "after": after,
            }
            answer = self._http.call("GET", "/sandboxes", query=query)
            found += answer["sandboxes"]
            after = answer["next"]
            if after is None:
                return found

    def get(self, ref: str) -> Sandbox:
        return cast(Sandbox, self._http.call("GET", _sandbox(ref)))

    def update(self, ref: str, changes: Mapping[str, Any]) -> Sandbox:
        return cast(Sandbox, self._http.call("PATCH", _sandbox(ref), body=dict(changes)))

    def delete(self, ref: str) -> Sandbox | None:
        return cast("Sandbox | None", self._http.call("DELETE", _sandbox(ref)))

    def pause(self, ref: str) -> Sandbox:
        return cast(Sandbox, self._http.call("POST", f"{_sandbox(ref)}/pause"))

    def resume(self, ref: str) -> Sandbox:
        return cast(Sandbox, self._http.call("POST", f"{_sandbox(ref)}/resume"))

    def stop(self, ref: str) -> Sandbox:
        return cast(Sandbox, self._http.call("POST", f"{_sandbox(ref)}/stop"))

    def stats(self, ref: str) -> Stats:
        return cast(Stats, self._http.call("GET", f"{_sandbox(ref)}/stats"))

    # Execs

    def start_exec(self, ref: str, request: ExecRequest) -> Exec:
        """Start a command and come back at once."""
        body = {**request, "background": True}
        return cast(Exec, self._http.call("POST", f"{_sandbox(ref)}/execs", body=body))

    def execs(self, ref: str, *, limit: int | None = None) -> list[Exec]:
        """Newest first."""
        answer = self._http.call("GET", f"{_sandbox(ref)}/execs", query={"limit": limit})
        return cast("list[Exec]", answer["execs"])

    def get_exec(self, ref: str, exec_id: str) -> Exec:
        return cast(Exec, self._http.call("GET", _exec(ref, exec_id)))

    def wait_exec(self, ref: str, exec_id: str, timeout: float | None = None) -> Exec:
        """The exec when it has ended. errors.Timeout when it still runs after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            patience = (
                LONG_POLL if deadline is None else min(LONG_POLL, max(0.0, deadline - time.monotonic()))
            )
            try:
                answer = self._http.call("GET", f"{_exec(ref, exec_id)}/wait", query={"timeout": patience})
                return cast(Exec, answer)
            except Timeout:
                if deadline is not None and time.monotonic() >= deadline:
                    raise

    def cancel_exec(self, ref: str, exec_id: str, *, grace: float | None = None) -> Exec:
        body = {} if grace is None else {"grace": grace}
        return cast(Exec, self._http.call("POST", f"{_exec(ref, exec_id)}/cancel", body=body))

    def signal_exec(self, ref: str, exec_id: str, signal: int | str, *, tree: bool = False) -> Exec:
        body = {"signal": signal, "tree": tree}
        return cast(Exec, self._http.call("POST", f"{_exec(ref, exec_id)}/signal", body=body))

    def output(
        self, ref: str, exec_id: str, *, after: int = 0, follow: bool = False, stream: str | None = None
    ) -> Answer:
        """NDJSON, one line for each piece, its bytes in base64."""
        query: Query = {"after": after, "follow": follow, "encoding": "base64", "stream": stream}
        headers = {"Accept": "application/x-ndjson"}
        return self._http.stream("GET", f"{_exec(ref, exec_id)}/output", query=query, headers=headers)

    # Files

    def stat(self, ref: str, path: str, *, follow: bool = True) -> Entry:
        query: Query = {"path": path, "follow": follow}
        return cast(Entry, self._http.call("GET", f"{_sandbox(ref)}/files/stat", query=query))

    def list_files(self, ref: str, path: str, *, depth: int = 1) -> Listing:
        query: Query = {"path": path, "depth": depth}
        return cast(Listing, self._http.call("GET", f"{_sandbox(ref)}/files/list", query=query))

    def read_file(self, ref: str, path: str) -> Answer:
        return self._http.stream("GET", f"{_sandbox(ref)}/files", query={"path": path})

    def write_file(
        self, ref: str, path: str, body: Iterable[bytes], *, mode: str | None = None, size: int | None = None
    ) -> Entry:
        headers = {"Content-Type": "application/octet-stream"}
        if size is not None:
            headers["Content-Length"] = str(size)
        query = {"path": path, "mode": mode}
        return cast(Entry, self._upload(f"{_sandbox(ref)}/files", query, body, headers))

    def remove(self, ref: str, path: str, *, recursive: bool = False) -> None:
        self._http.call("DELETE", f"{_sandbox(ref)}/files", query={"path": path, "recursive": recursive})

    def make_folder(self, ref: str, path: str, *, parents: bool = False, mode: str | None = None) -> Entry:
        body: dict[str, Any] = {"path": path, "parents": parents}
        if mode is not None:
            body["mode"] = mode
        return cast(Entry, self._http.call("POST", f"{_sandbox(ref)}/files/mkdir", body=body))

    def move(self, ref: str, source: str, target: str, *, overwrite: bool = True) -> Entry:
        body = {"source": source, "target": target, "overwrite": overwrite}
        return cast(Entry, self._http.call("POST", f"{_sandbox(ref)}/files/move", body=body))

    def watch(self, ref: str, path: str, *, recursive: bool = True) -> Iterator[dict[str, Any]]:
        """Changes below a path; the first event says that the watch is in place."""
        query: Query = {"path": path, "recursive": recursive}
        for event in self._server_events(f"{_sandbox(ref)}/files/watch", query):
            told = json.loads(event.data)
            if event.kind == "error":
                raise error_told(told)
            yield told

    def pack(self, ref: str, path: str) -> Answer:
        """A tar archive of a file or folder; its names begin with the folder's own."""
        return self._http.stream("GET", f"{_sandbox(ref)}/files/archive", query={"path": path})

    def unpack(self, ref: str, path: str, body: Iterable[bytes]) -> dict[str, Any]:
        headers = {"Content-Type": "application/x-tar"}
        answer = self._upload(f"{_sandbox(ref)}/files/archive", {"path": path}, body, headers)
        return cast("dict[str, Any]", answer)

    def _upload(
        self, path: str, query: Mapping[str, str | None], body: Iterable[bytes], headers: Mapping[str, str]
    ) -> Any:
        with self._http.stream("PUT", path, query=query, body=body, headers=headers) as answer:
            content = answer.read()
        return json.loads(content) if content else None

    # The server

    def events(
        self, *, after: int = 0, sandbox: str | None = None, kinds: Sequence[str] = ()
    ) -> Iterator[dict[str, Any]]:
        """What has happened since event `after`, until now."""
        while True:
            query: Query = {"follow": False, "after": after, "sandbox": sandbox, "kind": kinds}
            page = self._http.call("GET", "/events", query=query)["events"]
            if not page:
                return
            yield from page
            after = page[-1]["id"]

    def last_event(self) -> int:
        answer = self._http.call("GET", "/events", query={"follow": False, "limit": 1})
        return int(answer["last"])

    def follow_events(
        self, *, after: int, sandbox: str | None = None, kinds: Sequence[str] = ()
    ) -> Iterator[dict[str, Any]]:
        """What happens after event `after`, without an end and, over lost connections, without a hole."""

        def ask(last: str | None) -> Iterator[ServerEvent]:
            query: Query = {"after": last, "sandbox": sandbox, "kind": kinds}
            yield from self._server_events("/events", query)

        return (json.loads(event.data) for event in followed(ask, str(after)))

    def _server_events(self, path: str, query: Query) -> Iterator[ServerEvent]:
        headers = {"Accept": "text/event-stream"}
        with self._http.stream("GET", path, query=query, headers=headers, timeout=QUIET_SECONDS) as answer:
            yield from parse(answer.lines())

    def create_token(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return cast("dict[str, Any]", self._http.call("POST", "/tokens", body=dict(request)))

    def tokens(self) -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", self._http.call("GET", "/tokens")["tokens"])

    def revoke_token(self, token_id: str) -> dict[str, Any]:
        answer = self._http.call("DELETE", f"/tokens/{quote(token_id, safe='')}")
        return cast("dict[str, Any]", answer)

    def audit(self, *, limit: int | None = None, before: int | None = None) -> list[dict[str, Any]]:
        """Newest first."""
        answer = self._http.call("GET", "/audit", query={"limit": limit, "before": before})
        return cast("list[dict[str, Any]]", answer["entries"])

    def info(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self._http.call("GET", "/info"))

    def doctor(self) -> Any:
        return self._http.call("GET", "/doctor")
