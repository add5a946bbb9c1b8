"""What every request passes before it is served."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest_asyncio

from tests.integration.serving import Api, Box, served, settings_for


async def test_request_ids_are_kept_when_decent_and_made_otherwise(api: Api) -> None:
    for given, kept in (("abc-1.2_3", True), ("x" * 129, False), ("a b", False), ("a;b", False)):
        answer = await api.http.get("/healthz", headers={"X-Request-Id": given})
        assert (answer.headers["x-request-id"] == given) is kept
    first, second = [(await api.http.get("/healthz")).headers["x-request-id"] for _ in range(2)]
    assert first != second


async def test_health_is_for_everybody_and_nothing_else_is(api: Api) -> None:
    async with httpx2.AsyncClient(base_url=api.url, trust_env=False) as nobody:
        for path in ("/healthz", "/readyz"):
            answer = await nobody.get(path, headers={"Host": "anything.example"})
            assert (answer.status_code, answer.text) == (200, "ok")
        assert (await nobody.get("/openapi.json")).status_code == 200
        assert "openapi.json" in (await nobody.get("/docs")).text
        for path in ("/api/v1/sandboxes", "/api/v1/info", "/metrics", "/sandboxes", "/api/v1/nowhere"):
            answer = await nobody.get(path)
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"].startswith("Bearer")
        for authorization in ("Bearer wrong", "Bearer", "Basic abc", "pdk_x"):
            answer = await nobody.get("/api/v1/info", headers={"Authorization": authorization})
            assert answer.status_code == 401, authorization


async def test_roles(api: Api, box: Box) -> None:
    observer, operator = await api.token("sees", "observer"), await api.token("does", "operator")
    for method, path, needs in (
        ("GET", "/api/v1/sandboxes", 0),
        ("GET", box.path, 0),
        ("GET", f"{box.path}/files/list", 0),
        ("GET", "/metrics", 0),
        ("GET", "/sandboxes", 0),
        ("POST", f"{box.path}/execs", 1),
        ("POST", f"{box.path}/files/mkdir", 1),
        ("PATCH", box.path, 1),
        ("POST", f"/sandboxes/{box.id}/exec", 1),
        ("GET", "/api/v1/tokens", 2),
        ("GET", "/api/v1/audit", 2),
        ("POST", "/api/v1/tokens", 2),
        ("DELETE", "/api/v1/tokens/none", 2),
        ("GET", "/api/v1/doctor", 2),
    ):
        for rank, secret in enumerate((observer, operator)):
            answer = await api.http.request(method, path, headers=api.headers(secret))
            assert (answer.status_code == 403) is (rank < needs), (method, path, rank, answer.text)
    answer = await api.http.delete(box.path, headers=api.headers(observer))
    assert (answer.status_code, answer.json()["reason"]) == (403, "role")
    assert (await api.http.get(box.path)).status_code == 200


async def test_tokens_are_made_listed_and_revoked(api: Api) -> None:
    secret = await api.token("short-lived", "observer")
    listed = (await api.http.get("/api/v1/tokens")).json()["tokens"]
    assert {"admin", "short-lived"} <= {token["name"] for token in listed}
    assert secret not in (await api.http.get("/api/v1/tokens")).text
    answer = await api.http.get("/api/v1/info", headers=api.headers(secret))
    assert (answer.json()["you"], answer.json()["role"]) == ("short-lived", "observer")
    assert (await api.http.delete("/api/v1/tokens/short-lived")).status_code == 200
    answer = await api.http.get("/api/v1/info", headers=api.headers(secret))
    assert (answer.status_code, answer.json()["reason"]) == (401, "token_revoked")
    assert (await api.http.delete("/api/v1/tokens/short-lived")).status_code == 404
    for body in ({"name": "x", "role": "king"}, {"name": "../x"}, {"role": "admin"}):
        assert (await api.http.post("/api/v1/tokens", json=body)).status_code == 400


async def test_foreign_hosts_and_origins_are_refused(api: Api) -> None:
    answer = await api.http.get("/api/v1/info", headers={"Host": "evil.example"})
    assert (answer.status_code, answer.json()["reason"]) == (403, "host")
    answer = await api.http.get("/api/v1/info", headers={"Origin": "http://evil.example"})
    assert (answer.status_code, answer.json()["reason"]) == (403, "origin")
    answer = await api.http.get("/api/v1/info", headers={"Origin": api.url})
    assert answer.status_code == 200
    answer = await api.http.options(
        "/api/v1/info", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "GET"}
    )
    assert answer.status_code == 403


async def test_unknown_addresses_and_methods(api: Api) -> None:
    answer = await api.http.get("/api/v1/nowhere")
    assert (answer.status_code, answer.json()["reason"]) == (404, "no_route")
    answer = await api.http.put("/api/v1/sandboxes")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
    answer = await api.http.get("/api/v1/sandboxes/x/attach")
    assert answer.status_code == 400
    assert "WebSocket" in answer.json()["error"]
    observer = await api.token("newline", "observer")
    answer = await api.http.get("/api/v1/tokens%0a", headers=api.headers(observer))
    assert answer.status_code == 404


async def test_what_was_done_is_in_the_audit_log(api: Api, box: Box) -> None:
    operator = await api.token("worker", "operator")
    await api.http.post(f"{box.path}/execs", json={"command": ["true"]}, headers=api.headers(operator))
    await api.http.get("/api/v1/tokens", headers=api.headers(operator))
    await api.http.post("/api/v1/tokens", json={"name": "no"}, headers=api.headers(operator))
    answer = await api.http.get("/api/v1/audit", params={"limit": 3})
    page = answer.json()
    lines = [(line["actor"], line["action"], line["outcome"]) for line in page["entries"]]
    assert lines == [
        ("worker", "token.create", "role"),
        ("worker", "exec.start", "ok"),
        ("admin", "token.create", "ok"),
    ]
    assert page["entries"][1]["target"].startswith(f"{box.id}/")
    rest = (await api.http.get("/api/v1/audit", params={"before": page["next"]})).json()
    assert [line["action"] for line in rest["entries"]] == ["sandbox.create"]
    assert rest["entries"][0]["target"] == box.id
    assert rest["next"] is None


async def test_metrics_count_what_happens(api: Api, box: Box) -> None:
    await box.run("true")
    await api.http.get("/api/v1/nowhere")
    text = (await api.http.get("/metrics")).text
    assert 'paddock_requests_total{action="exec.start",status="200"} 1.0' in text
    assert 'paddock_sandboxes{state="running"} 1.0' in text
    assert 'paddock_failures_total{reason="no_route"} 1.0' in text
    answer = await api.http.get("/metrics", headers={"Accept": "application/json"})
    assert (answer.json()["sandbox_create_total"], answer.json()["sandbox_exec_total"]) == (1, 1)


async def test_a_sandbox_lives_its_life_over_http(api: Api) -> None:
    http = api.http
    answer = await http.post(
        "/api/v1/sandboxes", json={"name": "first", "labels": {"team": "a"}, "metadata": {"n": 1}}
    )
    assert answer.status_code == 201
    sandbox = answer.json()
    assert answer.headers["location"] == f"/api/v1/sandboxes/{sandbox['id']}"
    assert sandbox["created_by"] == "admin"
    assert (await http.post("/api/v1/sandboxes", json={"name": "first"})).status_code == 409
    assert (await http.post("/api/v1/sandboxes", json={"name": "../x"})).status_code == 400
    other = (await http.post("/api/v1/sandboxes")).json()
    assert (await http.get("/api/v1/sandboxes/first")).json()["id"] == sandbox["id"]
    page = (await http.get("/api/v1/sandboxes", params={"limit": 1})).json()
    assert [one["id"] for one in page["sandboxes"]] == [sandbox["id"]]
    page = (await http.get("/api/v1/sandboxes", params={"after": page["next"]})).json()
    assert ([one["id"] for one in page["sandboxes"]], page["next"]) == ([other["id"]], None)
    page = (await http.get("/api/v1/sandboxes", params={"label": "team=a", "state": "running"})).json()
    assert [one["name"] for one in page["sandboxes"]] == ["first"]
    assert (await http.get("/api/v1/sandboxes", params={"label": "team"})).status_code == 400
    assert (await http.get("/api/v1/sandboxes", params={"state": "dancing"})).status_code == 400
    answer = await http.patch("/api/v1/sandboxes/first", json={"name": "second", "ttl": 1000})
    assert (answer.json()["name"], answer.json()["labels"]) == ("second", {"team": "a"})
    assert (await http.get("/api/v1/sandboxes/second/stats")).json()["execs_running"] == 0
    assert (await http.post("/api/v1/sandboxes/second/stop")).json()["state"] == "stopped"
    answer = await http.post("/api/v1/sandboxes/second/execs", json={"command": ["true"]})
    assert (answer.status_code, answer.json()["reason"]) == (409, "sandbox_not_running")
    assert (await http.delete("/api/v1/sandboxes/second")).json()["state"] == "deleted"
    assert (await http.get("/api/v1/sandboxes/second")).status_code == 404
    assert (await http.delete("/api/v1/sandboxes/second")).status_code == 404


@pytest_asyncio.fixture
async def tight(tmp_path: Path) -> AsyncIterator[Api]:
    settings = settings_for(
        tmp_path / "data",
        rate_limit={"per_second": 0.5, "burst": 10},
        allowed_origins=("https://dash.example",),
        allowed_hosts=("box.example",),
    )
    async with served(settings) as api:
        yield api


async def test_too_many_requests_are_told_when_to_come_back(tight: Api) -> None:
    answers = [await tight.http.get("/api/v1/info") for _ in range(30)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) >= 15
    assert refused[0].json()["reason"] == "rate_limited"
    assert int(refused[0].headers["retry-after"]) >= 1
    # Guessing tokens is counted by where it comes from, not by the guess.
    guesses = [
        await tight.http.get("/api/v1/info", headers={"Authorization": f"Bearer pdk_{number}"})
        for number in range(30)
    ]
    assert {answer.status_code for answer in guesses} == {401, 429}
    assert (await tight.http.get("/healthz")).status_code == 200


async def test_allowed_hosts_and_origins_pass(tight: Api) -> None:
    origin = "https://dash.example"
    answer = await tight.http.get("/api/v1/info", headers={"Origin": origin, "Host": "box.example"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, origin)
    async with httpx2.AsyncClient(base_url=tight.url, trust_env=False) as nobody:
        answer = await nobody.options(
            "/api/v1/info", headers={"Origin": origin, "Access-Control-Request-Method": "POST"}
        )
    assert answer.status_code == 204
    assert "POST" in answer.headers["access-control-allow-methods"]


async def test_no_auth_asks_nobody(tmp_path: Path) -> None:
    async with served(settings_for(tmp_path / "data", no_auth=True)) as api:
        async with httpx2.AsyncClient(base_url=api.url, trust_env=False) as nobody:
            answer = await nobody.get("/api/v1/info")
            assert (answer.status_code, answer.json()["authentication"]) == (200, False)
            answer = await nobody.post("/api/v1/sandboxes", headers={"Origin": "http://evil.example"})
            assert answer.status_code == 403


async def test_a_client_that_stops_reading_harms_nobody(api: Api, box: Box) -> None:
    """It asks for more than any buffer holds and reads nothing; others are served as before."""
    exec_id = await box.start("sh", "-c", "yes | head -c 12000000")
    host, _, port = api.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as stuck:
        request = (
            f"GET {box.path}/execs/{exec_id}/output?encoding=raw HTTP/1.1\r\nHost: {host}\r\n"
            f"Authorization: Bearer {api.admin}\r\n\r\n"
        )
        await asyncio.get_running_loop().run_in_executor(None, stuck.sendall, request.encode())
        assert (await box.ended(exec_id))["exit_code"] == 0
        assert (await box.run("echo", "fine"))["stdout"] == "fine\n"


async def test_malformed_http_is_refused(api: Api) -> None:
    host, _, port = api.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"NONSENSE\r\n\r\n")
    await writer.drain()
    first = await asyncio.wait_for(reader.readline(), 30)
    assert b"400" in first
    writer.close()


async def test_info_and_doctor_tell_what_the_host_can(api: Api) -> None:
    info: dict[str, Any] = (await api.http.get("/api/v1/info")).json()
    assert "fake" in {runtime["name"] for runtime in info["runtimes"]}
    assert info["default_runtime"] == "fake"
    report = (await api.http.get("/api/v1/doctor")).json()
    assert report["healthy"] is True
    assert "fake" in {check["name"] for check in report["checks"]}
