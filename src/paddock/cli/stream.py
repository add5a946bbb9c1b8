"""A command in a sandbox, joined to our own stdin, stdout, stderr and signals until it ends.

One loop waits for everything: the connection, stdin, room on stdout, signals. A lost connection is made again
and goes on where it broke off: output from the position reached, input from what the command has got.
"""

from __future__ import annotations

import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from paddock.cli.pipes import Input, Sink
from paddock.cli.report import note
from paddock.cli.signals import Signals
from paddock.cli.terminal import size_of
from paddock.client.attach import EOF, Ended, Failed, Gap, Output, Started, decode, resize, start
from paddock.client.client import Client
from paddock.client.shapes import Exec, ExecRequest
from paddock.client.transport import Address
from paddock.client.websocket import WebSocket
from paddock.errors import PaddockError, Unavailable

HIGH_WATER = 1 << 20
RECONNECT_SECONDS = 60.0
PING_SECONDS = 15.0
SILENT_SECONDS = 60.0
CANCEL_SECONDS = 10.0
LEAVE_SECONDS = 2.0
INTERRUPT_KEY = b"\x03"
DETACH_KEY = b"\x1d"


class Detached(Exception):
    """We leave; the command goes on."""


class OutputClosed(Exception):
    """Nobody reads our output any more."""


@dataclass(slots=True)
class Target:
    ref: str
    exec_id: str
    request: ExecRequest | None = None
    """What to start; None to attach to what runs."""


@dataclass(slots=True)
class Session:
    address: Callable[[], Address]
    """Asked again for every connection: a restarted server may be elsewhere."""
    target: Target
    sink: Sink
    signals: Signals
    input: Input | None = None
    raw: bool = False
    """Keys come uninterpreted, so Ctrl-C is input and no signal."""
    detach_key: bool = False
    forwards_signals: bool = True
    exec: Exec | None = None
    _position: int = 0
    _started: bool = False
    _eof_sent: bool = False
    _interrupts: int = 0
    _cancel_deadline: float | None = None
    _ended: Ended | None = None
    _complaint: PaddockError | None = None
    """The server's last word, if it was an error."""
    _link: WebSocket = field(init=False)

    def run(self) -> Ended:
        self._link = self._open(self.address())
        try:
            while True:
                self._pump()
                if self._ended is not None:
                    return self._ended
                self._link.close()
                self._link = self._reopen()
        except OutputClosed:
            self._cancel()
            raise
        finally:
            self._link.close()

    # Connections

    def _open(self, address: Address) -> WebSocket:
        ref, request = self.target.ref, self.target.request
        if request is not None and not self._started:
            link = WebSocket.connect(address, f"/sandboxes/{ref}/attach?mode=binary")
            # Asking twice with one id starts one process, so this may be repeated after a loss.
            link.send_text(start(dict(request)))
            return link
        path = f"/sandboxes/{ref}/execs/{self.target.exec_id}/attach"
        return WebSocket.connect(address, f"{path}?after={self._position}&mode=binary")

    def _reopen(self) -> WebSocket:
        deadline = time.monotonic() + RECONNECT_SECONDS
        pause = 0.05
        told = False
        while True:
            try:
                link = self._open(self.address())
                if told:
                    self._note("connected again")
                return link
            except Unavailable as error:
                if time.monotonic() > deadline:
                    raise self._lost() from error
            if not told and pause > 0.5:
                self._note("the connection was lost: trying again")
                told = True
            self._idle(pause)
            pause = min(pause * 2, 2.0)

    def _idle(self, seconds: float) -> None:
        """Wait without a connection; an interrupt ends it."""
        poller = select.poll()
        poller.register(self.signals.fd, select.POLLIN)
        if self.raw and self.input is not None and not self.input.ended:
            poller.register(self.input.fd, select.POLLIN)
        for fd, _ in poller.poll(seconds * 1000):
            if fd == self.signals.fd:
                if any(number != signal.SIGWINCH for number in self.signals.take()):
                    raise self._lost()
            elif self.input is not None and INTERRUPT_KEY in self.input.read():
                raise self._lost()

    def _lost(self) -> Unavailable:
        return Unavailable(
            "the connection to the server was lost; the command may still run",
            reason="connection_lost",
            hint=f"go on with: paddock attach {self.target.ref} {self.target.exec_id}",
        )

    # The loop

    def _pump(self) -> None:
        """Until the command has ended and all was written, or the connection is lost."""
        link = self._link
        pinged_at = time.monotonic()
        self._take(link)
        while True:
            if self._ended is not None and not self.sink.pending:
                return
            if self._ended is None and link.closed:
                if self._complaint is not None:
                    raise self._complaint
                self._flush_sink()
                return
            events = dict(self._poller(link).poll(0 if link.has_buffered else 1000))
            if self.signals.fd in events:
                self._take_signals(link)
            if self.sink.waiting_for() in events:
                self._write()
            if events.get(link.fileno(), 0) & select.POLLOUT:
                link.flush()
            if events.get(link.fileno(), 0) & ~select.POLLOUT or link.has_buffered:
                self._take(link)
            if self.input is not None and self.input.fd in events and self._wants_input(link):
                self._forward(link, self.input.read())
            pinged_at = self._check_time(link, pinged_at)

    def _poller(self, link: WebSocket) -> select.poll:
        poller = select.poll()
        poller.register(self.signals.fd, select.POLLIN)
        waited = self.sink.waiting_for()
        if waited is not None:
            poller.register(waited, select.POLLOUT)
        wanted = select.POLLIN if self._reads(link) else 0
        wanted |= select.POLLOUT if link.unsent else 0
        if wanted and link.fileno() >= 0:
            poller.register(link.fileno(), wanted)
        if self.input is not None and self._wants_input(link):
            poller.register(self.input.fd, select.POLLIN)
        return poller

    def _reads(self, link: WebSocket) -> bool:
        return self._ended is None and not link.closed and self.sink.pending < HIGH_WATER

    def _wants_input(self, link: WebSocket) -> bool:
        source = self.input
        return (
            source is not None
            and not source.ended
            and self._started
            and self._ended is None
            and link.unsent < HIGH_WATER
        )

    def _check_time(self, link: WebSocket, pinged_at: float) -> float:
        now = time.monotonic()
        if self._cancel_deadline is not None and now > self._cancel_deadline:
            raise Detached
        # Silence counts only while we listen ourselves.
        if not self._reads(link):
            link.heard_at = now
        elif now - link.heard_at > SILENT_SECONDS:
            link.closed = True
        if now - pinged_at > PING_SECONDS:
            link.ping()
            return now
        return pinged_at

    def _take(self, link: WebSocket) -> None:
        for message in link.receive():
            said = decode(message)
            if isinstance(said, Output):
                self._put(said)
            elif isinstance(said, Started):
                self._begin(link, said.exec)
            elif isinstance(said, Ended):
                self._ended = said
            elif isinstance(said, Gap):
                self._position = max(self._position, said.end)
                self._note(f"{said.end - said.start} bytes of output are no longer kept")
            self._complaint = said.error if isinstance(said, Failed) else None
            if self._complaint is not None and not self._started:
                raise self._complaint

    def _put(self, output: Output) -> None:
        known = self._position - output.position
        fresh = output.data[known:] if known > 0 else output.data
        self.sink.put(output.stream, fresh)
        self._position = max(self._position, output.position + len(output.data))

    def _begin(self, link: WebSocket, started: Exec) -> None:
        first = not self._started
        self._started = True
        self.exec = started
        self.target.exec_id = started["id"]
        if self.input is not None and not first:
            self._send_again(link, started["stdin_bytes"])
        if self.raw and not first:
            self._resize(link)

    def _send_again(self, link: WebSocket, received: int) -> None:
        missing = cast(Input, self.input).since(received)
        if missing is None:
            self._cancel()
            raise PaddockError(
                "the connection was lost, and input with it; the command was cancelled", reason="input_lost"
            )
        self._eof_sent = False
        self._forward(link, missing)

    def _forward(self, link: WebSocket, data: bytes) -> None:
        source = cast(Input, self.input)
        if self.detach_key and DETACH_KEY in data:
            link.send_bytes(data[: data.index(DETACH_KEY)])
            link.drain(LEAVE_SECONDS)
            raise Detached
        if data:
            link.send_bytes(data)
        if source.ended and not self._eof_sent:
            self._eof_sent = True
            link.send_text(EOF)

    # Signals

    def _take_signals(self, link: WebSocket) -> None:
        for number in self.signals.take():
            if number == signal.SIGWINCH:
                self._resize(link)
            elif not self.forwards_signals:
                raise Detached
            elif number == signal.SIGINT and self._interrupts == 0 and self._started:
                self._interrupts += 1
                self._call(lambda server: server.signal_exec(self.target.ref, self.target.exec_id, "SIGINT"))
            else:
                self._cancel()
                if not self._started:
                    raise Detached
                self._cancel_deadline = self._cancel_deadline or time.monotonic() + CANCEL_SECONDS

    def _cancel(self) -> None:
        self._call(lambda server: server.cancel_exec(self.target.ref, self.target.exec_id))

    def _call(self, act: Callable[[Client], object]) -> None:
        """Beside the connection, on which input that nobody reads may stand in the way."""
        try:
            with Client(self.address()) as server:
                act(server)
        except Unavailable as error:
            raise self._lost() from error
        except PaddockError:
            # It has ended by itself, or not even begun.
            return

    def _resize(self, link: WebSocket) -> None:
        size = size_of(0, 1, 2)
        link.send_text(resize(size["rows"], size["columns"]))

    # The end

    def _write(self) -> None:
        try:
            self.sink.write_some()
        except BrokenPipeError:
            raise OutputClosed from None
        except OSError as error:
            self._cancel()
            raise PaddockError(f"cannot write the output: {error.strerror}", reason="output") from error

    def _flush_sink(self) -> None:
        """Between connections there is time to write out what is here."""
        while (fd := self.sink.waiting_for()) is not None:
            poller = select.poll()
            poller.register(fd, select.POLLOUT)
            poller.register(self.signals.fd, select.POLLIN)
            if any(ready == self.signals.fd for ready, _ in poller.poll()):
                return
            self._write()

    def _note(self, text: str) -> None:
        # A raw terminal does not go back to the margin by itself.
        note(text, end="\r\n" if self.raw else "\n")


def exit_code(ended: Ended, interrupted_by: int | None) -> int:
    """The command's own exit code, or what its end means here."""
    if ended.state == "timed_out":
        note("the command was killed: it ran into its timeout")
        return 5
    if ended.error and (ended.signal is not None or ended.exit_code is not None):
        note(ended.error)
    if ended.signal is not None:
        return 128 + ended.signal
    if ended.exit_code is not None:
        return ended.exit_code
    if ended.state == "canceled":
        return 128 + (interrupted_by or signal.SIGTERM)
    raise PaddockError(ended.error or f"the command has {ended.state}", reason=ended.reason)
