from __future__ import annotations

import itertools
import json
import socket
import struct
from collections.abc import Iterator

import pytest

from paddock.client.transport import Address, Transport, error_of, error_told, with_query
from paddock.errors import Conflict, Denied, Invalid, NotFound, PaddockError, Unavailable
from tests.unit.client.conftest import Scripted


def transport(server: Scripted, token: str | None = None) -> Transport:
    return Transport(Address.parse(server.url, token), timeout=20)


def test_a_call_sends_json_and_the_token(scripted: Scripted) -> None:
    scripted.answer("200 OK", b'{"id": "x"}')
    assert transport(scripted, "secret").call("POST", "/sandboxes", body={"name": "é"}) == {"id": "x"}
    request = scripted.requests[0]
    assert request.startswith(b"POST /api/v1/sandboxes HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret\r\n" in request
    assert json.loads(request.partition(b"\r\n\r\n")[2]) == {"name": "é"}


def test_an_empty_answer_is_none(scripted: Scripted) -> None:
    scripted.answer("204 No Content")
    assert transport(scripted).call("DELETE", "/x") is None


def test_the_body_of_an_error_becomes_the_error(scripted: Scripted) -> None:
    scripted.answer(
        "404 Not Found", b'{"error": "no such sandbox", "reason": "sandbox_not_found", "hint": "look"}'
    )
    with pytest.raises(NotFound) as caught:
        transport(scripted).call("GET", "/sandboxes/x")
    error = caught.value
    assert (error.message, error.reason, error.hint) == ("no such sandbox", "sandbox_not_found", "look")
    assert error.exit_code == 3


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"detail": 1}', b"\xff\xfe"])
def test_an_error_without_our_body_is_told_all_the_same(body: bytes) -> None:
    assert "502" in error_of(502, body).message


def test_unknown_statuses_have_a_class_too() -> None:
    assert isinstance(error_of(422, b""), Invalid)
    assert type(error_of(599, b"")) is PaddockError


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("exec_not_found", NotFound),
        ("not_found", NotFound),
        ("path_denied", Denied),
        ("conflict", Conflict),
        ("something_else", PaddockError),
        ("", PaddockError),
    ],
)
def test_an_error_inside_a_stream_has_its_class_by_its_reason(reason: str, kind: type[PaddockError]) -> None:
    assert type(error_told({"error": "e", "reason": reason})) is kind


def test_something_that_is_not_paddock_is_named_so(scripted: Scripted) -> None:
    scripted.answer("200 OK", b"<html>hello</html>")
    with pytest.raises(PaddockError) as caught:
        transport(scripted).call("GET", "/info")
    assert caught.value.reason == "not_paddock"


def test_nobody_there_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unavailable) as caught:
        Transport(Address.parse(f"http://127.0.0.1:{port}")).call("GET", "/info")
    assert caught.value.reason == "server_unreachable"
    assert "paddock up" in (caught.value.hint or "")


def test_a_kept_connection_that_was_closed_meanwhile_is_made_again(scripted: Scripted) -> None:
    scripted.answer("200 OK", b"1", keep=True)
    http = transport(scripted)
    assert http.call("GET", "/a") == 1
    # The server has no further answer and closes; then it gets one, for a new connection.
    scripted.answer("200 OK", b"2")
    assert http.call("GET", "/b") == 2


def test_a_body_that_is_cut_short_is_an_error(scripted: Scripted) -> None:
    scripted.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\n12345")
    with transport(scripted).stream("GET", "/files") as answer, pytest.raises(Unavailable):
        list(answer.chunks())


def test_a_chunked_body_that_is_cut_short_is_an_error(scripted: Scripted) -> None:
    scripted.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n")
    with transport(scripted).stream("GET", "/files") as answer, pytest.raises(Unavailable):
        list(answer.chunks())


def test_a_whole_body_comes_whole(scripted: Scripted) -> None:
    scripted.raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n7\r\n world!\r\n0\r\n\r\n"
    )
    with transport(scripted).stream("GET", "/files") as answer:
        assert b"".join(answer.chunks()) == b"hello world!"


def test_a_body_is_sent_as_it_is_made(scripted: Scripted) -> None:
    scripted.answer("201 Created", b"{}")
    with transport(scripted).stream("PUT", "/files", body=iter([b"ab", b"", b"c"])) as answer:
        assert answer.read() == b"{}"
    assert scripted.requests[0].endswith(b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")


def test_an_early_refusal_is_told_rather_than_the_broken_pipe(scripted: Scripted) -> None:
    body = b'{"error": "the disk is full", "reason": "disk_full"}'
    head = f"HTTP/1.1 507 Full\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()

    def refuse(sock: socket.socket, _: bytes) -> None:
        sock.sendall(head + body)
        while sock.recv(1 << 20):
            pass

    scripted.reads_bodies = False
    scripted.answers.append(refuse)
    with pytest.raises(PaddockError) as caught:
        transport(scripted).stream("PUT", "/files", body=itertools.repeat(bytes(1 << 16)))
    assert caught.value.reason == "disk_full"


def test_a_failure_to_make_the_body_is_not_the_servers(scripted: Scripted) -> None:
    scripted.answer("200 OK", b"{}")

    def broken() -> Iterator[bytes]:
        yield b"some"
        raise PermissionError(13, "Permission denied", "/secret")

    with pytest.raises(PermissionError):
        transport(scripted).stream("PUT", "/files", body=broken())


def test_a_reset_connection_is_unavailable(scripted: Scripted) -> None:
    def reset(sock: socket.socket, _: bytes) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    scripted.answers.append(reset)
    with pytest.raises(Unavailable):
        transport(scripted).call("POST", "/sandboxes", body={})


def test_queries_are_quoted_repeated_and_left_out() -> None:
    query = {"path": "/a b&c=é", "x": None, "follow": True, "n": 1.5, "kind": ["a", "b"]}
    assert with_query("/p", query) == "/p?path=%2Fa%20b%26c%3D%C3%A9&follow=1&n=1.5&kind=a&kind=b"
    assert with_query("/p", {"path": "\udcff"}) == "/p?path=%FF"
    assert with_query("/p", {}) == "/p"


def test_addresses() -> None:
    address = Address.parse("https://[::1]/base/", "t")
    assert (address.host, address.port, address.base, address.secure) == ("::1", 443, "/base", True)
    assert Address.parse("http://localhost:81").port == 81


@pytest.mark.parametrize(
    "url", ["", "localhost:8122", "ftp://x", "http://", "http://x:99999", "http://[", "//x"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        Address.parse(url)


@pytest.mark.parametrize("token", ["a\r\nX: y", "é", "\x00"])
def test_a_token_that_would_break_the_header_is_refused(token: str) -> None:
    with pytest.raises(Invalid):
        Address.parse("http://x", token)
