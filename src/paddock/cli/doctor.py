"""`paddock doctor`: what this host can do. Needs no server."""

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from paddock.cli.command import command, new_app
from paddock.cli.connect import data_dir
from paddock.cli.context import current
from paddock.cli.output import emit_json, on_terminal
from paddock.cli.report import plain

if TYPE_CHECKING:
    from paddock.runtimes.base import Ability

app = new_app()


@command(app, "doctor")
def doctor() -> None:
    """Prove by trying what this host can do for sandboxes, and say what to do about the rest.

    Exit code 1 when the default runtime cannot work.
    """
    from paddock.runtimes.doctor import diagnose

    found = asyncio.run(diagnose(data_dir()))
    # The first is the runtime itself; without the others it still works, with fewer limits enforced.
    healthy = bool(found) and found[0].works
    if current.json:
        emit_json({"healthy": healthy, "checks": [asdict(ability) for ability in found]})
    else:
        _print(found)
    if not healthy:
        raise typer.Exit(1)


def _print(found: "list[Ability]") -> None:
    width = max((len(ability.name) for ability in found), default=0)
    if not on_terminal():
        for ability in found:
            mark = "ok" if ability.works else "missing"
            print(f"{mark:<8}{ability.name:<{width}}  {plain(ability.detail)}".rstrip())
            if ability.fix and not ability.works:
                print(f"{'':<8}{'':<{width}}  fix: {plain(ability.fix)}")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for _ in range(3):
        drawn.add_column(overflow="fold")
    for ability in found:
        sign = Text("✓", "green") if ability.works else Text("✗", "red")
        told = Text(plain(ability.detail))
        if ability.fix and not ability.works:
            told.append(f"{' ' if ability.detail else ''}→ {plain(ability.fix)}", "yellow")
        drawn.add_row(sign, Text(ability.name, "bold"), told)
    Console(highlight=False).print(drawn)
