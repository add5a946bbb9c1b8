"""Execs that run or ran: their list, their output, and what can be done to them."""

import base64
import json
import signal as signals
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.command import command, new_app
from paddock.cli.connect import client
from paddock.cli.context import current
from paddock.cli.options import (
    ExecId,
    Ref,
)
from paddock.cli.output import emit_json, emit_line, moment, span, table
from paddock.cli.values import (
    duration,
)
from paddock.errors import Invalid

if TYPE_CHECKING:
    from paddock.client import Client
    from paddock.client.shapes import Exec

app = new_app()

SomeExec = Annotated[
    str | None,
    typer.Argument(metavar="[EXEC]", help="An exec's id; all of them when left out.", show_default=False),
]
COMMAND_WIDTH = 60


@command(app, "execs")
def execs(
    ref: Ref,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most this many.")] = 100,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the ids.")] = False,
) -> None:
    """List a sandbox's execs, newest first."""
    with client() as server:
        found = server.execs(ref, limit=limit)
    if current.json:
        emit_json([item["id"] for item in found] if quiet else found)
    elif quiet:
        for item in found:
            print(item["id"])
    else:
        table(("id", "state", "exit", "started", "took", "command"), [_row(item) for item in found], state=1)


def _row(item: "Exec") -> tuple[object, ...]:
    line = " ".join(item["command"])
    short = line if len(line) <= COMMAND_WIDTH else f"{line[: COMMAND_WIDTH - 1]}…"
    started, finished = item["started_at"], item["finished_at"]
    took = span(finished - started) if started is not None and finished is not None else None
    ended = item["exit_code"] if item["signal"] is None else signal_name(item["signal"])
    return item["id"], item["state"], ended, moment(started or item["created_at"]), took, short


def signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


@command(app, "logs")
def logs(
    ref: Ref,
    exec_id: SomeExec = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
    stream: Annotated[str | None, typer.Option(help="Only stdout, or only stderr.")] = None,
) -> None:
    """Print the output of one exec, or of all of a sandbox's, oldest first."""
    if stream not in (None, "stdout", "stderr"):
        raise Invalid(f"there is no stream {stream!r}", reason="usage", hint="stdout or stderr")
    with client() as server:
        wanted = [exec_id] if exec_id else [item["id"] for item in reversed(server.execs(ref, limit=1000))]
        for one in wanted:
            _print_output(server, ref, one, follow, stream)


def _print_output(server: "Client", ref: str, exec_id: str, follow: bool, stream: str | None) -> None:
    import os

    from paddock.cli.report import note

    for event in _output(server, ref, exec_id, follow, stream):
        if current.json:
            emit_line({"exec_id": exec_id} | event)
        elif event["type"] == "output":
            data = memoryview(base64.b64decode(event["data_base64"]))
            while data:
                data = data[os.write(1 if event["stream"] == "stdout" else 2, data) :]
        elif event["type"] == "gap":
            note(f"{event['end'] - event['start']} bytes of output are no longer kept")


def _output(
    server: "Client", ref: str, exec_id: str, follow: bool, stream: str | None
) -> Iterator[dict[str, Any]]:
    """Its output events, over lost connections too."""
    from paddock.client.transport import error_told
    from paddock.client.watch import Patience
    from paddock.errors import Unavailable

    after, patience = 0, Patience()
    while True:
        try:
            with server.output(ref, exec_id, after=after, follow=follow, stream=stream) as answer:
                for line in answer.lines():
                    event: dict[str, Any] = json.loads(line)
                    if event["type"] == "error":
                        raise error_told(event)
                    after = max(after, int(event.get("seq", 0)))
                    patience.reset()
                    yield event
                    if event["type"] == "exit":
                        return
            if not follow:
                return
        except Unavailable:
            if after == 0 or not patience.wait():
                raise


@command(app, "attach")
def attach(
    ref: Ref,
    exec_id: ExecId,
    no_stdin: Annotated[bool, typer.Option("--no-stdin", help="Only watch.")] = False,
) -> None:
    """Join a running exec: its output from the beginning, and your input.

    Ctrl-] leaves a terminal, Ctrl-C anything else; the command goes on either way. Exits with its exit code.
    """
    from paddock.cli.joined import join
    from paddock.cli.signals import Signals
    from paddock.cli.stream import Target

    with client() as server:
        found = server.get_exec(ref, exec_id)
    tty = found["terminal"]
    with Signals([signals.SIGWINCH] if tty else []) as noted:
        target = Target(ref, exec_id)
        raise typer.Exit(join(target, noted, interactive=not no_stdin, tty=tty, leave=True))


@command(app, "kill")
def kill(
    ref: Ref,
    exec_id: ExecId,
    signal: Annotated[
        str | None, typer.Option("--signal", "-s", help="Send only this signal, e.g. INT or 9.")
    ] = None,
    tree: Annotated[
        bool, typer.Option("--tree", help="The signal goes to every process of the exec.")
    ] = False,
) -> None:
    """End an exec with everything it started: SIGTERM, and SIGKILL after a while."""
    if tree and signal is None:
        signal = "KILL"
    with client() as server:
        if signal is None:
            found = server.cancel_exec(ref, exec_id)
        else:
            number: int | str = int(signal) if signal.isdigit() else signal
            found = server.signal_exec(ref, exec_id, number, tree=tree)
    emit_json(found) if current.json else print(found["id"])


@command(app, "wait")
def wait(
    ref: Ref,
    exec_id: ExecId,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="Wait no longer (exit code 5).")
    ] = None,
) -> None:
    """Wait until an exec has ended, and exit with its exit code."""
    from paddock.cli.stream import exit_code
    from paddock.client.attach import Ended

    with client() as server:
        found = server.wait_exec(ref, exec_id, duration(timeout))
    if current.json:
        emit_json(found)
    ended = Ended(found["state"], found["exit_code"], found["signal"], found["reason"], found["error"])
    raise typer.Exit(exit_code(ended, None))
