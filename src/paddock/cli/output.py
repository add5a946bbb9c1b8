"""Results on stdout: JSON for machines, tables for people, plain aligned text where there is no terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from paddock.cli.report import plain

STATE_COLOURS = {
    "running": "green",
    "completed": "green",
    "paused": "yellow",
    "creating": "cyan",
    "stopping": "yellow",
    "canceling": "yellow",
    "stopped": "bright_black",
    "canceled": "bright_black",
    "failed": "red",
    "timed_out": "red",
}


def on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def emit_json(value: Any) -> None:
    print(json.dumps(value, indent=2 if on_terminal() else None, ensure_ascii=True), flush=True)


def emit_line(value: Any) -> None:
    """One of many, a line each."""
    print(json.dumps(value, ensure_ascii=True), flush=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, state: int | None = None) -> None:
    """`state` names the column whose words have colours."""
    cells = [[plain("-" if cell is None or cell == "" else cell) for cell in row] for row in rows]
    if on_terminal():
        _rich_table(columns, cells, state)
        return
    lines = [[name.upper() for name in columns], *cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print(text.rstrip())


def _rich_table(columns: Sequence[str], cells: Sequence[Sequence[str]], state: int | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i, name in enumerate(columns):
        # The first says which one it is, and is copied: it stays whole however narrow the terminal.
        whole = max(len(row[0]) for row in cells) if i == 0 and cells else None
        drawn.add_column(name.upper(), overflow="fold", no_wrap=i == 0, min_width=whole)
    for row in cells:
        drawn.add_row(
            *(
                Text(cell, style=STATE_COLOURS.get(cell, "") if i == state else "")
                for i, cell in enumerate(row)
            )
        )
    Console(highlight=False).print(drawn)


def details(fields: Mapping[str, object]) -> None:
    """One thing, a line for each of its sides. What is None is left out."""
    shown = {name: plain(value) for name, value in fields.items() if value not in (None, "", {}, [])}
    if not shown:
        return
    width = max(len(name) for name in shown) + 2
    if not on_terminal():
        for name, value in shown.items():
            print(f"{name:<{width}}{value}")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for name, value in shown.items():
        style = STATE_COLOURS.get(value, "") if name == "state" else ""
        console.print(Text.assemble((f"{name:<{width}}", "bold"), (value, style)), soft_wrap=True)


def moment(seconds: float | None) -> str | None:
    """A time: how long ago on a terminal, else the exact one."""
    if seconds is None:
        return None
    if on_terminal():
        away = time.time() - seconds
        return f"{span(away)} ago" if away >= 0 else f"in {span(-away)}"
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(seconds: float | None) -> str | None:
    """A length of time in one or two units: 45s, 3m, 2h 10m, 4d 3h."""
    if seconds is None:
        return None
    if seconds < 60:
        return f"{seconds:.0f}s" if seconds >= 10 or seconds == int(seconds) else f"{seconds:.1f}s"
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size or parts:
            count, seconds = divmod(seconds, size)
            parts.append(f"{count:.0f}{unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0"))


def size(count: int | None) -> str | None:
    """Bytes for people."""
    if count is None:
        return None
    from paddock.config.sizes import format_size

    return format_size(count)
