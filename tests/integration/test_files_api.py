"""Files over HTTP."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.serving import Box, eventually


async def put(box: Box, path: str, content: Any, **params: Any) -> Any:
    answer = await box.api.http.put(f"{box.path}/files", params={"path": path, **params}, content=content)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_a_file_goes_in_and_comes_out(box: Box) -> None:
    data = bytes(range(256)) * 8192

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(data), 100_000):
            yield data[start : start + 100_000]

    entry = await put(box, "deep/folder/data.bin", pieces(), mode="0640", mtime=1_000_000_000)
    assert (entry["type"], entry["size"], entry["mtime"]) == ("file", len(data), 1_000_000_000)
    answer = await box.api.http.get(f"{box.path}/files", params={"path": "deep/folder/data.bin"})
    assert answer.content == data
    assert answer.headers["content-length"] == str(len(data))
    assert answer.headers["x-content-type-options"] == "nosniff"
    stat = await box.api.http.get(f"{box.path}/files/stat", params={"path": "deep/folder/data.bin"})
    assert stat.json()["mode"].endswith("640")


async def test_ranges_conditions_and_head(box: Box) -> None:
    await put(box, "digits", b"0123456789")
    http, url, params = box.api.http, f"{box.path}/files", {"path": "digits"}
    for wanted, status, content, place in (
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=8-100", 206, b"89", "bytes 8-9/10"),
        ("bytes=0-1,4-5", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
    ):
        answer = await http.get(url, params=params, headers={"Range": wanted})
        assert (answer.status_code, answer.content, answer.headers.get("content-range")) == (
            status,
            content,
            place,
        )
    answer = await http.get(url, params=params, headers={"Range": "bytes=10-"})
    assert (answer.status_code, answer.json()["reason"]) == (416, "range")
    head = await http.head(url, params=params)
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "10")
    etag = head.headers["etag"]
    assert (await http.get(url, params=params, headers={"If-None-Match": etag})).status_code == 304
    answer = await http.get(url, params=params, headers={"Range": "bytes=0-0", "If-Range": '"old"'})
    assert answer.status_code == 200
    assert (await http.head(url, params={"path": "missing"})).status_code == 404


async def test_errors_say_which(box: Box) -> None:
    http = box.api.http
    await put(box, "file", b"x")
    for method, call, params, status, reason in (
        ("GET", "", {"path": "missing"}, 404, "path_not_found"),
        ("GET", "", {"path": "."}, 409, "is_a_directory"),
        ("GET", "/stat", {"path": "file/below"}, 409, "not_a_directory"),
        ("PUT", "", {"path": "file", "exclusive": 1}, 409, "path_exists"),
        ("PUT", "", {"path": "a/b/c", "parents": 0}, 404, "path_not_found"),
        ("DELETE", "", {"path": "missing"}, 404, "path_not_found"),
        ("GET", "", {}, 400, "invalid"),
        ("GET", "/list", {"depth": "deep"}, 400, "invalid"),
        ("PUT", "", {"path": "x", "mode": "rwx"}, 400, "invalid"),
        ("GET", "/stat", {"path": "a\0b"}, 400, "invalid"),
        ("GET", "/stat", {"path": "x" * 5000}, 400, "invalid"),
    ):
        answer = await http.request(method, f"{box.path}/files{call}", params=params)
        assert (answer.status_code, answer.json()["reason"]) == (status, reason), (
            method,
            call,
            params,
            answer.text,
        )
    answer = await http.get("/api/v1/sandboxes/nobody/files", params={"path": "x"})
    assert (answer.status_code, answer.json()["reason"]) == (404, "sandbox_not_found")


async def test_folders_are_made_listed_moved_and_removed(box: Box) -> None:
    http = box.api.http
    answer = await http.post(f"{box.path}/files/mkdir", json={"path": "one/two"})
    assert (answer.status_code, answer.json()["type"]) == (201, "directory")
    await put(box, "one/two/file", b"content")
    answer = await http.post(f"{box.path}/files/move", json={"source": "one/two", "target": "three"})
    assert answer.status_code == 200, answer.text
    answer = await http.get(f"{box.path}/files/list", params={"depth": 3})
    names = {entry["path"].rpartition("workspace/")[2] for entry in answer.json()["entries"]}
    assert {"one", "three", "three/file"} <= names
    answer = await http.delete(f"{box.path}/files", params={"path": "three"})
    assert (answer.status_code, answer.json()["reason"]) == (409, "not_empty")
    answer = await http.delete(f"{box.path}/files", params={"path": "three", "recursive": 1})
    assert answer.status_code == 204
    answer = await http.get(f"{box.path}/files/stat", params={"path": "three"})
    assert answer.status_code == 404


async def test_an_upload_that_breaks_off_leaves_the_old_file(box: Box) -> None:
    await put(box, "kept", b"old")
    sent = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"new" * 100_000
        sent.set()
        await asyncio.Event().wait()

    upload = asyncio.create_task(
        box.api.http.put(f"{box.path}/files", params={"path": "kept"}, content=endless())
    )
    await asyncio.wait_for(sent.wait(), 30)
    upload.cancel()
    await asyncio.wait([upload])

    async def audited() -> bool:
        lines = (await box.api.http.get("/api/v1/audit")).json()["entries"]
        return any(line["action"] == "file.write" and line["outcome"] != "ok" for line in lines)

    await eventually(audited)
    answer = await box.api.http.get(f"{box.path}/files", params={"path": "kept"})
    assert answer.content == b"old"
    listing = (await box.api.http.get(f"{box.path}/files/list")).json()["entries"]
    assert [entry["name"] for entry in listing] == ["kept"]


async def test_archives_go_both_ways(box: Box) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("tree/leaf.txt")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"leaf"))
    answer = await box.api.http.put(
        f"{box.path}/files/archive", params={"path": "."}, content=buffer.getvalue()
    )
    assert (answer.status_code, answer.json()["bytes"]) == (200, 4), answer.text
    answer = await box.api.http.get(f"{box.path}/files/archive", params={"path": "tree"})
    assert answer.headers["content-type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        leaf = next(member for member in archive if member.name.endswith("leaf.txt"))
        file = archive.extractfile(leaf)
        assert file is not None
        assert file.read() == b"leaf"
    answer = await box.api.http.put(f"{box.path}/files/archive", content=b"no tar at all" * 1000)
    assert answer.status_code == 400, answer.text


async def test_changes_are_watched(box: Box) -> None:
    seen: list[str] = []
    async with box.api.http.stream("GET", f"{box.path}/files/watch", params={"path": "."}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for line in answer.aiter_lines():
            if not line.startswith("data: "):
                continue
            event = json.loads(line.removeprefix("data: "))
            seen.append(event["event"])
            if event["event"] == "ready":
                await box.run("touch", "made")
            elif event["path"].endswith("made"):
                break
    assert seen[0] == "ready"


async def test_made_up_files_have_content_though_no_size(box: Box) -> None:
    answer = await box.api.http.get(f"{box.path}/files", params={"path": "/proc/self/status"})
    if answer.status_code != 200:
        pytest.fail(answer.text)
    assert b"Name:" in answer.content
