"""`paddock audit`."""

from typing import Annotated

import typer

from paddock.cli.command import command, new_app
from paddock.cli.connect import client
from paddock.cli.context import current
from paddock.cli.output import emit_json, moment, table

app = new_app()


@command(app, "audit")
def audit(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most this many.")] = 100,
    before: Annotated[int | None, typer.Option(min=1, help="Only those before this one.")] = None,
) -> None:
    """Show who did what, newest first."""
    with client() as server:
        found = server.audit(limit=limit, before=before)
    if current.json:
        emit_json(found)
        return
    rows = [
        (line["id"], moment(line["at"]), line["actor"], line["action"], line["target"], line["outcome"])
        for line in found
    ]
    table(("id", "when", "who", "did", "to", "outcome"), rows)
