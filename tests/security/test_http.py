"""The server's own door: names, sizes, headers and framing made to confuse it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from tests.integration.serving import Api, Box, eventually, served, settings_for

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.leaks_ok, pytest.mark.needs("cc")]

OPEN = {"/healthz", "/readyz", "/openapi.json", "/docs"}


def _address(api: Api) -> tuple[str, int]:
    host, _, port = api.url.removeprefix("http://").partition(":")
    return host, int(port)


async def raw(api: Api, request: bytes, *, wait: float = 30.0) -> bytes:
    """Everything the server says to these bytes until it closes, or has said nothing for a moment."""
    reader, writer = await asyncio.open_connection(*_address(api))
    said = b""
    try:
        writer.write(request)
        await writer.drain()
        async with asyncio.timeout(wait):
            while more := await asyncio.wait_for(reader.read(65536), wait if not said else 0.5):
                said += more
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.close()
    return said


def statuses(said: bytes) -> list[int]:
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3})", said)]


# -- who may do what


async def _routes(api: Api) -> list[tuple[str, str]]:
    described = (await api.http.get("/openapi.json")).json()["paths"]
    found = [
        (method.upper(), re.sub(r"\{[^}]*\}", "none", path))
        for path, methods in described.items()
        for method in methods
        if method in ("get", "post", "put", "patch", "delete")
    ]
    assert len(found) > 25
    return found


async def test_every_route_asks_who_calls(api: Api) -> None:
    async with httpx2.AsyncClient(base_url=api.url, trust_env=False) as nobody:
        for method, path in await _routes(api):
            if path not in OPEN:
                for token in (None, "Bearer pdk_" + "0" * 40, "Bearer null", "Basic YTph"):
                    headers = {"Authorization": token} if token else {}
                    answer = await nobody.request(method, path, headers=headers)
                    assert answer.status_code == 401, (method, path, token)


async def test_an_observer_changes_nothing_and_an_operator_makes_no_tokens(api: Api) -> None:
    observer, operator = await api.token("looks", "observer"), await api.token("works", "operator")
    refused = 0
    for method, path in await _routes(api):
        if method != "GET" or "/tokens" in path or "/audit" in path:
            answer = await api.http.request(method, path, headers=api.headers(observer))
            assert (answer.status_code, answer.json().get("reason", "role")) == (403, "role"), (method, path)
            refused += 1
        if "/tokens" in path:
            answer = await api.http.request(method, path, headers=api.headers(operator))
            assert answer.status_code == 403, (method, path)
    assert refused > 12


async def test_a_token_that_has_expired(api: Api) -> None:
    answer = await api.http.post(
        "/api/v1/tokens", json={"name": "brief", "role": "observer", "expires_in": 0.2}
    )
    assert answer.status_code == 201, answer.text
    secret = answer.json()["secret"]

    async def refused() -> bool:
        return (await api.http.get("/api/v1/info", headers=api.headers(secret))).status_code != 200

    await eventually(refused)
    answer = await api.http.get("/api/v1/info", headers=api.headers(secret))
    assert (answer.status_code, answer.json()["reason"]) == (401, "token_expired")


FOREIGN_HOSTS = (
    "evil.example", "evil.example:8122", "127.0.0.1.evil.example", "localhost.evil.example",
    "127.0.0.1@evil.example", "[::1].evil.example", "0x7f000001.evil.example", "",
)  # fmt: skip
FOREIGN_ORIGINS = (
    "null", "file://", "http://evil.example", "http://evil.example:PORT", "http://127.0.0.1:1",
    "http://127.0.0.1:PORT.evil.example", "https://evil@127.0.0.1:PORTx", "http://[::1].evil.example:PORT",
)  # fmt: skip


async def test_a_page_of_somebody_else_may_not_call(api: Api, box: Box) -> None:
    """Names that a browser was made to believe are ours, and origins that only look like it."""
    _, port = _address(api)
    for host in FOREIGN_HOSTS:
        answer = await api.http.get("/api/v1/info", headers={"Host": host})
        assert answer.status_code in (400, 403), host
    origins = [origin.replace("PORT", str(port)) for origin in FOREIGN_ORIGINS]
    for origin in origins:
        answer = await api.http.post(
            f"{box.path}/execs", json={"command": ["true"]}, headers={"Origin": origin}
        )
        assert (answer.status_code, answer.json()["reason"]) == (403, "origin"), origin
        assert "access-control-allow-origin" not in answer.headers


async def test_a_websocket_of_somebody_elses_page_is_refused(api: Api, box: Box) -> None:
    host, port = _address(api)
    for origin, status in (("http://evil.example", 403), ("null", 403), (api.url, 101)):
        request = (
            f"GET {box.path}/attach HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {origin}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            f"Authorization: Bearer {api.admin}\r\n\r\n"
        )
        said = await raw(api, request.encode())
        assert statuses(said)[:1] == [status], (origin, said[:200])


# -- names

TRICKS = [
    "..", ".", "../x", "a/../../b", "/etc/passwd", "a/b", "a\0b", "a\nb", "a b", "A", "-a", "a-", "a" * 64,
    "a" * 100_000, "", "%2e%2e", "ünï", "\u2024\u2024", "a\u202eb", "\U0001f600", "con.", "~root", "$(id)",
]  # fmt: skip


@pytest.mark.parametrize("field", ["id", "name", "tenant"])
async def test_names_that_are_paths(api: Api, field: str) -> None:
    data = api.server.services.settings.data_dir
    before = sorted(str(path) for path in data.parent.rglob("*") if "private" not in str(path))
    for trick in TRICKS:
        answer = await api.http.post("/api/v1/sandboxes", json={field: trick})
        assert answer.status_code in (400, 413), (field, trick[:50])
        assert answer.json()["reason"]
    assert sorted(str(path) for path in data.parent.rglob("*") if "private" not in str(path)) == before


async def test_addresses_that_are_paths(api: Api) -> None:
    for trick in (
        "..",
        "../..",
        "%2e%2e",
        "..%2f..%2fprivate",
        "%00",
        "a%00b",
        "%ff",
        "%0d%0aX: y",
        "a" * 5000,
    ):
        for place in (f"/api/v1/sandboxes/{trick}", f"/api/v1/sandboxes/{trick}/execs/{trick}/output"):
            host, port = _address(api)
            request = (
                f"GET {place} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n"
                f"Authorization: Bearer {api.admin}\r\n\r\n"
            )
            said = await raw(api, request.encode("latin-1"))
            assert statuses(said)[0] in (400, 404, 414, 431), (place[:80], said[:100])
            assert b"\r\nX: y" not in said


async def test_ids_of_execs_that_are_paths(api: Api, box: Box) -> None:
    for trick in ("../../../escaped", "a/b", "..", "x" * 65, "ab\0cdefgh", "new\nline00"):
        answer = await api.http.post(f"{box.path}/execs", json={"id": trick, "command": ["true"]})
        assert answer.status_code == 400, trick
        if trick == "..":
            continue  # the client itself would shorten the address
        for verb in ("", "/output", "/wait"):
            answer = await api.http.get(f"{box.path}/execs/{quote(trick, safe='')}{verb}")
            assert answer.status_code in (400, 404), trick


# -- sizes and shapes


async def test_bodies_that_are_too_much(api: Api, box: Box) -> None:
    limit = api.server.services.settings.max_request_bytes
    huge = json.dumps({"command": ["x" * limit]})
    answer = await api.http.post(
        f"{box.path}/execs", content=huge, headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.json()["reason"]) == (413, "too_large")

    async def endless() -> Any:
        for _ in range(1 + limit // 65536):
            yield b" " * 65536

    answer = await api.http.post(f"{box.path}/execs", content=endless())
    assert answer.status_code == 413, "its length was not told, and still it counts"


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000, b'{"a":' * 100_000, b"{" + b'"a":1,' * 10_000 + b'"a":1}', b"\xff\xfe{}",
        b'{"command": ["\xff"]}', b'{"command": ["\\ud800"]}', b'{"command": ["a\\u0000b"]}',
        b'{"timeout": 1e999, "command": ["true"]}', b'{"timeout": NaN, "command": ["true"]}',
        b'{"command": [' + b"9" * 50_000 + b"]}", b"null", b'"x"', b"1", b'{"command": "true"}',
        b'{"command": []}', b'{"command": [""]}', b'{"command": ["true"], "extra": 1}',
        b'{"command": ["true"], "environment": {"A=B": "x"}}', b'{"command": ["true"], "cwd": "a\\u0000"}',
        b'{"command": ["true"], "user": "a\\u0000b"}', b'{"command": ["true"], "terminal": {"rows": 99999}}',
    ],
)  # fmt: skip
async def test_bodies_that_are_no_request(api: Api, box: Box, body: bytes) -> None:
    answer = await api.http.post(
        f"{box.path}/execs", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in (400, 413), answer.text[:200]
    assert answer.json()["reason"]


# -- framing

AMBIGUOUS = {
    "length and chunks": "Content-Length: 6\r\nTransfer-Encoding: chunked",
    "chunks and length": "Transfer-Encoding: chunked\r\nContent-Length: 6",
    "two lengths": "Content-Length: 6\r\nContent-Length: 60",
    "a list of lengths": "Content-Length: 6, 60",
    "a negative length": "Content-Length: -6",
    "a signed length": "Content-Length: +6",
    "a hexadecimal length": "Content-Length: 0x6",
    "a length beyond numbers": "Content-Length: 99999999999999999999999",
    "chunks that are not last": "Transfer-Encoding: chunked, identity",
    "unknown chunks": "Transfer-Encoding: xchunked",
    "a space before the colon": "Content-Length : 6",
    "a name with a line end": "X: y\rContent-Length: 6",
    "a NUL": "X: a\0b",
}


@pytest.mark.parametrize("name", AMBIGUOUS)
async def test_a_request_in_the_body_of_another(api: Api, name: str) -> None:
    """Two readers might see its end at two places. It is refused, and what follows is not served."""
    host, port = _address(api)
    head = f"Host: {host}:{port}\r\nAuthorization: Bearer {api.admin}\r\n"
    body = '{"name": "smuggled"}'
    inner = (
        f"POST /api/v1/sandboxes HTTP/1.1\r\n{head}Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    )
    outer = f"POST /api/v1/nowhere HTTP/1.1\r\n{head}{AMBIGUOUS[name]}\r\n\r\n0\r\n\r\nX{inner}"
    said = await raw(api, outer.encode("latin-1"))
    assert statuses(said) in ([400], []), said[:300]
    assert (await api.http.get("/api/v1/sandboxes/smuggled")).status_code == 404


async def test_headers_without_end(api: Api) -> None:
    host, port = _address(api)
    filler = "".join(f"X-{number}: {'y' * 1000}\r\n" for number in range(2000))
    said = await raw(api, f"GET /healthz HTTP/1.1\r\nHost: {host}:{port}\r\n{filler}\r\n".encode())
    assert statuses(said) in ([400], [431], [200], [])
    assert (await api.http.get("/readyz")).status_code == 200


# -- time


async def test_slow_clients_hold_nobody_up(api: Api, box: Box) -> None:
    """Many connections that begin a request and never end it, in the head and in the body."""
    host, port = _address(api)
    begun = [
        b"GET /api/v1/info HT",
        f"POST {box.path}/execs HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {api.admin}\r\n"
        "Content-Length: 1000\r\n\r\n{".encode(),
    ]
    held = []
    try:
        for number in range(100):
            _, writer = await asyncio.open_connection(host, port)
            writer.write(begun[number % 2])
            held.append(writer)
        async with asyncio.timeout(30):
            for _ in range(5):
                assert (await box.run("echo", "fine"))["stdout"] == "fine\n"
    finally:
        for writer in held:
            writer.close()


async def test_too_many_requests(tmp_path: Path) -> None:
    """One caller is told to wait; another is served."""
    settings = settings_for(tmp_path / "data", rate_limit={"per_second": 0.5, "burst": 8})
    async with served(settings) as tight:
        other = await tight.token("other", "observer")
        answers = [await tight.http.get("/api/v1/info") for _ in range(20)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert len(refused) >= 8
        for answer in refused:
            assert int(answer.headers["retry-after"]) >= 1
            assert answer.json()["reason"] == "rate_limited"
        answer = await tight.http.get("/api/v1/info", headers=tight.headers(other))
        assert answer.status_code == 200
