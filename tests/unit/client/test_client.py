from __future__ import annotations

import json

import pytest

from paddock.client import Address, Client
from paddock.errors import NotFound, Timeout
from tests.unit.client.conftest import Scripted


def line(request: bytes) -> str:
    return request.partition(b"\r\n")[0].decode().removesuffix(" HTTP/1.1")


def body(request: bytes) -> object:
    return json.loads(request.partition(b"\r\n\r\n")[2])


def test_names_are_imported_when_used() -> None:
    import paddock.client

    assert paddock.client.Address is Address
    with pytest.raises(AttributeError):
        _ = paddock.client.Nonsense


def test_a_list_is_read_to_its_last_page(scripted: Scripted) -> None:
    scripted.answer("200 OK", b'{"sandboxes": [{"id": "a"}], "next": "a"}', keep=True)
    scripted.answer("200 OK", b'{"sandboxes": [{"id": "b"}], "next": null}')
    with Client(scripted.url) as client:
        found = client.sandboxes(states=("running", "paused"), labels={"k": "v w"}, page=1)
    assert [item["id"] for item in found] == ["a", "b"]
    assert line(scripted.requests[0]) == (
        "GET /api/v1/sandboxes?state=running&state=paused&label=k%3Dv%20w&limit=1"
    )
    assert line(scripted.requests[1]).endswith("&limit=1&after=a")


def test_references_are_quoted(scripted: Scripted) -> None:
    scripted.answer("404 Not Found", b'{"error": "no", "reason": "sandbox_not_found"}')
    with Client(scripted.url) as client, pytest.raises(NotFound):
        client.get("../tokens?x")
    assert line(scripted.requests[0]) == "GET /api/v1/sandboxes/..%2Ftokens%3Fx"


def test_waiting_asks_again_until_it_has_ended(scripted: Scripted) -> None:
    still = b'{"error": "still running", "reason": "exec_running"}'
    scripted.answer("504 Gateway Timeout", still, keep=True)
    scripted.answer("200 OK", b'{"id": "e", "state": "completed"}')
    with Client(scripted.url) as client:
        assert client.wait_exec("box", "e")["state"] == "completed"


def test_waiting_has_an_end(scripted: Scripted) -> None:
    scripted.answer("504 Gateway Timeout", b'{"error": "still running", "reason": "exec_running"}')
    with Client(scripted.url) as client, pytest.raises(Timeout):
        client.wait_exec("box", "e", timeout=0)


def test_what_is_started_runs_in_the_background(scripted: Scripted) -> None:
    scripted.answer("202 Accepted", b'{"id": "e"}')
    with Client(scripted.url) as client:
        client.start_exec("box", {"command": ["true"]})
    assert body(scripted.requests[0]) == {"command": ["true"], "background": True}


def test_events_are_read_page_by_page(scripted: Scripted) -> None:
    scripted.answer("200 OK", b'{"events": [{"id": 4}, {"id": 9}], "last": 9}', keep=True)
    scripted.answer("200 OK", b'{"events": [], "last": 9}')
    with Client(scripted.url) as client:
        assert [event["id"] for event in client.events(after=3, kinds=["a", "b"])] == [4, 9]
    assert line(scripted.requests[1]) == "GET /api/v1/events?follow=0&after=9&kind=a&kind=b"


def test_a_watch_that_fails_raises(scripted: Scripted) -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    scripted.raw(
        head
        + b'event: ready\ndata: {"event": "ready"}\n\n'
        + b'event: error\ndata: {"error": "gone", "reason": "path_not_found"}\n\n'
    )
    with Client(scripted.url) as client:
        events = client.watch("box", "x")
        assert next(events) == {"event": "ready"}
        with pytest.raises(NotFound):
            next(events)
