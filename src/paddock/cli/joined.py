"""`exec`, `run` and `attach` as one thing: a session on our own streams, and the exit code it ends with."""

from __future__ import annotations

import base64
import os
import signal
from dataclasses import dataclass
from typing import Any

from paddock.cli.connect import address
from paddock.cli.context import current
from paddock.cli.output import emit_json
from paddock.cli.pipes import Collector, Descriptors, Input, Sink
from paddock.cli.report import note
from paddock.cli.signals import Signals
from paddock.cli.stream import Detached, OutputClosed, Session, Target, exit_code
from paddock.cli.terminal import RawTerminal, size_of
from paddock.cli.values import (
    duration,
    environment,
)
from paddock.client.attach import Ended
from paddock.client.client import Client
from paddock.client.shapes import ExecRequest
from paddock.client.transport import Address
from paddock.errors import Invalid

BROKEN_PIPE = 128 + signal.SIGPIPE


@dataclass(frozen=True, slots=True)
class ExecOptions:
    """The flags of one command."""

    interactive: bool = False
    tty: bool = False
    env: list[str] | None = None
    workdir: str | None = None
    user: str | None = None
    timeout: str | None = None
    exec_id: str | None = None

    def request(self, command: list[str]) -> ExecRequest:
        # The id is ours: a start whose answer is lost can be asked for again without a second process.
        request: ExecRequest = {"id": self.exec_id or new_exec_id(), "command": command}
        if variables := environment(self.env, dict(os.environ)):
            request["environment"] = variables
        if self.workdir:
            request["cwd"] = self.workdir
        if self.user:
            request["user"] = self.user
        if (seconds := duration(self.timeout)) is not None:
            request["timeout"] = seconds
        if self.tty:
            request["terminal"] = size_of(0, 1, 2)
            term = os.environ.get("TERM")
            if term and os.isatty(1):
                request["environment"] = {"TERM": term} | request.get("environment", {})
        if self.interactive:
            request["open_stdin"] = True
        return request


def new_exec_id() -> str:
    return os.urandom(10).hex()


def words(command: list[str]) -> list[str]:
    """The command after the id, whether or not a `--` stands between them."""
    rest = command[1:] if command[:1] == ["--"] else command
    if not rest:
        raise Invalid("a command is missing", reason="usage", hint="see: paddock exec --help")
    if rest is command and rest[0].startswith("-"):
        raise Invalid(
            f"{rest[0]!r} stands where the command should",
            reason="usage",
            hint="put options before the id, and `--` before a command that begins with a dash",
        )
    return rest


def execute(ref: str, line: list[str], options: ExecOptions, *, detach: bool) -> int:
    """`paddock exec`."""
    request = options.request(words(line))
    if not detach:
        with Signals([signal.SIGWINCH] if options.tty else []) as signals:
            target = Target(ref, request["id"], request)
            return join(target, signals, interactive=options.interactive, tty=options.tty)
    with Client(address()) as server:
        started = server.start_exec(ref, request)
    emit_json(started) if current.json else print(started["id"])
    return 0


def join(target: Target, signals: Signals, *, interactive: bool, tty: bool, leave: bool = False) -> int:
    """Stay with the command until it ends. `leave`: interrupts and Ctrl-] end our part only."""
    found = [address()]

    def where() -> Address:
        """The first time what was found; later what there is then."""
        return found.pop() if found else address(start=False)

    sink: Sink = Collector() if current.json else Descriptors()
    keys = RawTerminal(0)
    session = Session(
        address=where,
        target=target,
        sink=sink,
        signals=signals,
        input=Input() if interactive else None,
        forwards_signals=not leave,
    )
    try:
        if interactive and tty and os.isatty(0) and not current.json:
            with keys:
                session.raw = keys.active
                session.detach_key = leave
                ended = session.run()
        else:
            ended = session.run()
    except OutputClosed:
        return BROKEN_PIPE
    except Detached:
        if leave:
            note(f"detached; the command goes on. Back: paddock attach {target.ref} {target.exec_id}")
            return 0 if session.detach_key else 128 + (signals.ended_by or signal.SIGINT)
        return 128 + (signals.ended_by or signal.SIGINT)
    if isinstance(sink, Collector):
        emit_json(_answer(session, ended, sink))
    return exit_code(ended, signals.ended_by)


def _answer(session: Session, ended: Ended, sink: Collector) -> dict[str, Any]:
    """What the API answers to a foreground exec."""
    out, err = sink.collected("stdout"), sink.collected("stderr")
    with Client(address(start=False)) as server:
        answer: dict[str, Any] = dict(server.get_exec(session.target.ref, session.target.exec_id))
    answer |= {
        "state": ended.state,
        "exit_code": ended.exit_code,
        "signal": ended.signal,
        "reason": ended.reason,
        "error": ended.error,
        "stdout_bytes": len(out),
        "stderr_bytes": len(err),
    }
    try:
        return answer | {"stdout": out.decode(), "stderr": err.decode(), "encoding": "utf-8"}
    except UnicodeDecodeError:
        coded = {"stdout": base64.b64encode(out).decode(), "stderr": base64.b64encode(err).decode()}
        return answer | coded | {"encoding": "base64"}
