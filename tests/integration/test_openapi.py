"""The API's description is true: schemathesis asks for what it promises, and for what it does not."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.integration.serving import Api, Process

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
UNSAFE = "^(?!(/healthz|/readyz|/metrics|/api/v1/(tokens|audit|sandboxes))$)"
"""What must not be asked at random of a runtime that isolates nothing."""
UNFIT = "(/events|/watch|/wait|/output|/doctor|/info|/pause|/resume|/stop)$"
"""What does not end, takes long, or ends the sandbox that the others ask about."""
CONFIG = """
[parameters]
"path.ref" = "target"
"path.sandbox_id" = "target"
"path.exec_id" = "target-exec"
[checks.not_a_server_error]
# Refusals by design: this host cannot, not in time, no room.
expected-statuses = ["2xx", "3xx", "4xx", "501", "504", "507"]
[[operations]]
include-path-regex = '{skipped}'
enabled = false
[[operations]]
include-method = "DELETE"
enabled = false
[[operations]]
# It has no way to write a tar.
include-operation-id-regex = "^unpack_files"
enabled = false
[[operations]]
# A host may fail to make a sandbox with limits that no host can hold.
include-operation-id-regex = "^create"
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "501", "507"]
"""


async def schemathesis(server: Process, folder: Path, skipped: str) -> None:
    assert server.where is not None
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG.replace("{skipped}", skipped))
    secret = (server.folder / "admin-token").read_text().strip()
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config)]
    command += ["run", f"{server.where['url']}/openapi.json", "--header", f"Authorization: Bearer {secret}"]
    command += ["--phases", "coverage,fuzzing", "--max-examples", "3", "--generation-deterministic"]
    command += ["--checks", CHECKS, "--suppress-health-check", "all", "--request-timeout", "60", "--no-color"]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(200):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    shown = output.decode(errors="replace")
    assert process.returncode == 0, shown[-20_000:] + server.log.read_text()[-5_000:]


async def empty(client: httpx2.AsyncClient) -> None:
    for sandbox in (await client.get("/api/v1/sandboxes", params={"limit": 1000})).json()["sandboxes"]:
        answer = await client.delete(f"/api/v1/sandboxes/{sandbox['id']}")
        assert answer.status_code in (200, 404), answer.text


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_without_isolation(start: Callable[..., Process], tmp_path: Path) -> None:
    server = start(max_sandboxes="20")
    async with server.client() as client:
        try:
            await schemathesis(server, tmp_path, UNSAFE)
        finally:
            await empty(client)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.needs("bwrap", "cc")
async def test_in_real_sandboxes(passable: Path, start: Callable[..., Process], tmp_path: Path) -> None:
    server = start(passable, default_runtime="bubblewrap", max_sandboxes="20")
    async with server.client() as client:
        try:
            answer = await client.post("/api/v1/sandboxes", json={"id": "target"})
            assert answer.status_code == 201, answer.text
            body = {"id": "target-exec", "command": ["cat"], "open_stdin": True, "background": True}
            answer = await client.post("/api/v1/sandboxes/target/execs", json=body)
            assert answer.status_code == 202, answer.text
            await schemathesis(server, tmp_path, UNFIT)
        finally:
            await empty(client)


async def test_every_operation_is_described_once_and_with_its_errors(api: Api) -> None:
    document: dict[str, Any] = (await api.http.get("/openapi.json")).json()
    names: list[str] = []
    for path, operations in document["paths"].items():
        for operation in operations.values():
            names.append(operation["operationId"])
            if path.startswith(("/api/v1", "/sandboxes")):
                assert {"400", "401", "403", "404", "429", "500", "503"} <= set(operation["responses"]), path
            assert "422" not in operation["responses"], path
    assert len(names) == len(set(names))
    known = set(document["components"]["schemas"])
    used = set(re.findall(r"#/components/schemas/([^'\"]+)", str(document)))
    assert used <= known
    assert {"ExecRequest", "CreateSandbox", "ExecResult", "ErrorBody"} <= used
