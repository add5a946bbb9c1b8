"""The loop against a server that says what a test wants, over a real WebSocket."""

from __future__ import annotations

import json
import os
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from paddock.cli import stream
from paddock.cli.pipes import Collector, Input
from paddock.cli.signals import Signals
from paddock.cli.stream import Detached, Session, Target, exit_code
from paddock.client.attach import Ended
from paddock.client.transport import Address
from paddock.errors import Conflict, PaddockError, Unavailable

Scene = Callable[[ServerConnection], None]


@dataclass
class Stage:
    """Each connection plays the next scene."""

    url: str = ""
    scenes: list[Scene] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def play(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        self.paths.append(connection.request.path)
        try:
            self.scenes.pop(0)(connection)
        except ConnectionClosed:
            return


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    server: Server = serve(made.play, "127.0.0.1", 0, compression=None)
    with server:
        made.url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield made
        server.shutdown()
        thread.join(20)


def started(connection: ServerConnection, **changes: object) -> None:
    connection.send(json.dumps({"type": "started", "exec": {"id": "exec0001", "stdin_bytes": 0} | changes}))


def output(connection: ServerConnection, position: int, data: bytes, number: int = 1) -> None:
    connection.send(struct.pack(">BQ", number, position) + data)


def ended(connection: ServerConnection, **changes: object) -> None:
    connection.send(json.dumps({"type": "exit", "state": "completed", "exit_code": 0} | changes))


def cut(connection: ServerConnection) -> None:
    connection.socket.shutdown(2)


def session(stage: Stage, signals: Signals, **changes: Any) -> tuple[Session, Collector]:
    sink = Collector()
    request = {"id": "exec0001", "command": ["true"]}
    target = Target("box", "exec0001", changes.pop("request", request))
    return Session(lambda: Address(stage.url, "t"), target, sink, signals, **changes), sink


def test_it_starts_and_collects(stage: Stage) -> None:
    said: list[Any] = []

    def scene(connection: ServerConnection) -> None:
        said.append(json.loads(connection.recv()))
        started(connection)
        output(connection, 0, b"out")
        output(connection, 3, b"err", 2)
        ended(connection, exit_code=3)

    stage.scenes = [scene]
    with Signals() as signals:
        run, sink = session(stage, signals)
        assert run.run().exit_code == 3
    assert said == [{"start": {"id": "exec0001", "command": ["true"]}}]
    assert (sink.collected("stdout"), sink.collected("stderr")) == (b"out", b"err")
    assert stage.paths == ["/api/v1/sandboxes/box/attach?mode=binary"]


def test_a_lost_connection_goes_on_where_it_broke_off(stage: Stage) -> None:
    def first(connection: ServerConnection) -> None:
        connection.recv()
        started(connection)
        output(connection, 0, b"0123")
        cut(connection)

    def second(connection: ServerConnection) -> None:
        started(connection)
        # Some of it again, as a careless server might: it counts once.
        output(connection, 2, b"2345")
        connection.close(1012)

    def third(connection: ServerConnection) -> None:
        started(connection)
        output(connection, 6, b"67")
        ended(connection)

    stage.scenes = [first, second, third]
    with Signals() as signals:
        run, sink = session(stage, signals)
        run.run()
    assert sink.collected("stdout") == b"01234567"
    path = "/api/v1/sandboxes/box/execs/exec0001/attach"
    assert stage.paths[1:] == [f"{path}?after=4&mode=binary", f"{path}?after=6&mode=binary"]


def test_a_start_whose_answer_was_lost_is_asked_for_again(stage: Stage) -> None:
    said: list[Any] = []

    def first(connection: ServerConnection) -> None:
        said.append(json.loads(connection.recv()))
        cut(connection)

    def second(connection: ServerConnection) -> None:
        said.append(json.loads(connection.recv()))
        started(connection)
        ended(connection)

    stage.scenes = [first, second]
    with Signals() as signals:
        session(stage, signals)[0].run()
    assert said[0] == said[1]
    assert said[0]["start"]["id"] == "exec0001"


def test_input_is_sent_and_ended(stage: Stage) -> None:
    said: list[Any] = []

    def scene(connection: ServerConnection) -> None:
        connection.recv()
        started(connection)
        got = b""
        while isinstance(message := connection.recv(), bytes):
            got += message
        said.extend([got, json.loads(message)])
        ended(connection)

    stage.scenes = [scene]
    data = os.urandom(300_000)
    read, write = os.pipe()
    writer = threading.Thread(target=lambda: (_write_all(write, data), os.close(write)))
    writer.start()
    with Signals() as signals:
        session(stage, signals, input=Input(read))[0].run()
    writer.join(20)
    os.close(read)
    assert said == [data, {"type": "eof"}]


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def test_input_that_was_lost_is_sent_again(stage: Stage) -> None:
    got: list[Any] = []

    def first(connection: ServerConnection) -> None:
        connection.recv()
        started(connection)
        assert connection.recv() == b"abcdef"
        cut(connection)

    def second(connection: ServerConnection) -> None:
        started(connection, stdin_bytes=2)
        got.extend([connection.recv(), json.loads(connection.recv())])
        ended(connection)

    stage.scenes = [first, second]
    read, write = os.pipe()
    os.write(write, b"abcdef")
    os.close(write)
    with Signals() as signals:
        session(stage, signals, input=Input(read))[0].run()
    os.close(read)
    assert got == [b"cdef", {"type": "eof"}]


def test_what_the_server_refuses_is_raised(stage: Stage) -> None:
    def scene(connection: ServerConnection) -> None:
        connection.recv()
        connection.send(json.dumps({"type": "error", "error": "it is paused", "reason": "conflict"}))
        connection.close(1008)

    stage.scenes = [scene]
    with Signals() as signals, pytest.raises(Conflict, match="it is paused"):
        session(stage, signals)[0].run()


def test_a_complaint_on_the_way_does_not_end_it(stage: Stage) -> None:
    def scene(connection: ServerConnection) -> None:
        connection.recv()
        started(connection)
        connection.send(json.dumps({"type": "error", "error": "too late", "reason": "exec_ended"}))
        output(connection, 0, b"more")
        ended(connection)

    stage.scenes = [scene]
    with Signals() as signals:
        run, sink = session(stage, signals)
        run.run()
    assert sink.collected("stdout") == b"more"


def test_output_that_is_no_longer_kept_is_told(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    def scene(connection: ServerConnection) -> None:
        started(connection)
        connection.send(json.dumps({"type": "gap", "start": 0, "end": 100}))
        output(connection, 100, b"rest")
        ended(connection)

    stage.scenes = [scene]
    with Signals() as signals:
        run, sink = session(stage, signals, request=None)
        run.run()
    assert sink.collected("stdout") == b"rest"
    assert "100 bytes of output are no longer kept" in capsys.readouterr().err


def test_a_watcher_leaves_at_a_signal(stage: Stage) -> None:
    def scene(connection: ServerConnection) -> None:
        started(connection)
        os.kill(os.getpid(), signal.SIGTERM)
        connection.recv()

    stage.scenes = [scene]
    with Signals() as signals, pytest.raises(Detached):
        session(stage, signals, request=None, forwards_signals=False)[0].run()


def test_an_interrupt_while_there_is_no_connection_ends_the_waiting(stage: Stage) -> None:
    def scene(connection: ServerConnection) -> None:
        connection.recv()
        started(connection)
        stage.url = "http://127.0.0.1:1"
        cut(connection)
        os.kill(os.getpid(), signal.SIGINT)

    stage.scenes = [scene]
    with Signals() as signals, pytest.raises(Unavailable) as caught:
        session(stage, signals)[0].run()
    assert caught.value.reason == "connection_lost"
    assert "paddock attach box exec0001" in (caught.value.hint or "")


def test_it_does_not_try_for_ever(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "RECONNECT_SECONDS", 0.2)

    def scene(connection: ServerConnection) -> None:
        connection.recv()
        started(connection)
        stage.url = "http://127.0.0.1:1"
        cut(connection)

    stage.scenes = [scene]
    with Signals() as signals, pytest.raises(Unavailable) as caught:
        session(stage, signals)[0].run()
    assert caught.value.reason == "connection_lost"


def test_nonsense_from_the_server_is_an_error(stage: Stage) -> None:
    def scene(connection: ServerConnection) -> None:
        connection.recv()
        connection.send("nonsense")
        connection.recv()

    stage.scenes = [scene]
    with Signals() as signals, pytest.raises(PaddockError) as caught:
        session(stage, signals)[0].run()
    assert caught.value.reason == "not_paddock"


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (Ended("completed", 0, None, None, None), 0),
        (Ended("failed", 7, None, None, None), 7),
        (Ended("failed", 137, 9, None, None), 137),
        (Ended("timed_out", 143, 15, "timeout", None), 5),
        (Ended("canceled", None, None, None, None), 130),
        (Ended("failed", 127, None, "command_not_found", "no such command"), 127),
    ],
)
def test_exit_codes(end: Ended, code: int) -> None:
    assert exit_code(end, signal.SIGINT) == code


def test_a_command_that_never_ran_is_our_own_failure() -> None:
    with pytest.raises(PaddockError, match="the guest is gone"):
        exit_code(Ended("failed", None, None, "sandbox_lost", "the guest is gone"), None)
