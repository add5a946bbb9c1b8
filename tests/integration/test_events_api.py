"""The event log over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.integration.serving import Api, Box, served, settings_for


async def page(api: Api, **params: Any) -> dict[str, Any]:
    answer = await api.http.get("/api/v1/events", params={"follow": 0, **params})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def frames(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, str]]:
    frame: dict[str, str] = {}
    async for line in lines:
        if line:
            key, _, value = line.partition(": ")
            frame[key] = value
        elif frame:
            yield frame
            frame = {}


async def test_a_page_of_events(api: Api, box: Box) -> None:
    await box.run("true")
    body = await page(api, sandbox=box.id)
    kinds = [event["kind"] for event in body["events"]]
    assert kinds == ["sandbox.created", "sandbox.running", "exec.started", "exec.finished"]
    assert body["last"] == body["events"][-1]["id"]
    body = await page(api, kind="exec.started")
    assert [event["sandbox_id"] for event in body["events"]] == [box.id]
    body = await page(api, after=body["events"][0]["id"], limit=1)
    assert [event["kind"] for event in body["events"]] == ["exec.finished"]
    assert (await page(api, sandbox="nobody"))["events"] == []


async def test_events_are_followed_and_replayed(api: Api, box: Box) -> None:
    before = (await page(api))["last"]
    seen: list[dict[str, str]] = []
    async with api.http.stream("GET", "/api/v1/events", params={"sandbox": box.id}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        running = asyncio.create_task(box.run("true"))
        async for frame in frames(answer.aiter_lines()):
            seen.append(frame)
            if frame["event"] == "exec.finished":
                break
        await running
    assert [frame["event"] for frame in seen] == ["exec.started", "exec.finished"]
    assert json.loads(seen[1]["data"])["data"]["exit_code"] == 0
    async with api.http.stream("GET", "/api/v1/events", headers={"Last-Event-ID": str(before)}) as answer:
        async for frame in frames(answer.aiter_lines()):
            assert frame == seen.pop(0)
            if not seen:
                break
    answer = await api.http.get("/api/v1/events", headers={"Last-Event-ID": "x"})
    assert answer.status_code == 400


async def test_silence_has_a_heartbeat_and_ends_with_the_server(tmp_path: Path) -> None:
    async with served(settings_for(tmp_path / "data", heartbeat_seconds=0.05)) as api:
        async with api.http.stream("GET", "/api/v1/events") as answer:
            beats = 0
            async for line in answer.aiter_lines():
                beats += line.startswith(":")
                if beats == 2:
                    api.server.services.closing.set()
    assert beats >= 2
