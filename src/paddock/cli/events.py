"""`paddock events`."""

import json
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from paddock.cli.command import command, new_app
from paddock.cli.connect import client
from paddock.cli.context import current
from paddock.cli.output import emit_line, moment
from paddock.cli.report import plain

app = new_app()


@command(app, "events")
def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens next.")] = False,
    after: Annotated[int | None, typer.Option(min=0, help="Only behind this event.")] = None,
    sandbox: Annotated[str | None, typer.Option(metavar="ID", help="Only of this sandbox.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Only of this kind, e.g. exec.finished; may be repeated.")
    ] = None,
) -> None:
    """Show what happened. --follow alone shows only what happens from now on."""
    with client() as server:
        if not follow:
            _show(server.events(after=after or 0, sandbox=sandbox, kinds=kind or ()))
            return
        begin = server.last_event() if after is None else after
        _show(server.follow_events(after=begin, sandbox=sandbox, kinds=kind or ()))


def _show(found: Iterable[dict[str, Any]]) -> None:
    for event in found:
        if current.json:
            emit_line(event)
            continue
        what = " ".join(str(event[key]) for key in ("sandbox_id", "exec_id") if event.get(key))
        data = json.dumps(event["data"]) if event.get("data") else ""
        line = f"{event['id']:>6}  {moment(event['at']):<24}  {event['kind']:<18}  {what}  {data}"
        print(plain(line).rstrip(), flush=True)
