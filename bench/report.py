"""Rows with a goal each, as a table for people and as JSON with every sample."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from bench.samples import Samples

SLACK = 0.25
"""`--check` lets a goal be missed by this much: the machine may be busy."""


class Direction(StrEnum):
    AT_MOST = "at most"
    AT_LEAST = "at least"


@dataclass(frozen=True, slots=True)
class Goal:
    direction: Direction
    value: float
    text: str

    def met(self, measured: float, slack: float = 0.0) -> bool:
        if self.direction is Direction.AT_MOST:
            return measured <= self.value * (1 + slack)
        return measured >= self.value * (1 - slack)


def at_most(value: float, text: str) -> Goal:
    return Goal(Direction.AT_MOST, value, text)


def at_least(value: float, text: str) -> Goal:
    return Goal(Direction.AT_LEAST, value, text)


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement, beside what it is compared with."""

    what: str
    samples: Samples
    baseline: Samples | None = None
    goal: Goal | None = None
    inverse: bool = False
    """The ratio says how many times better than the baseline this is, not how many times worse."""
    note: str = ""

    @property
    def ratio(self) -> float | None:
        if self.baseline is None:
            return None
        own, other = self.samples.median, self.baseline.median
        return other / own if self.inverse else own / other

    @property
    def measured(self) -> float:
        """What the goal is about: the ratio where there is a baseline, otherwise the median."""
        return self.samples.median if self.ratio is None else self.ratio

    def met(self, slack: float = 0.0) -> bool | None:
        return None if self.goal is None else self.goal.met(self.measured, slack)

    @property
    def verdict(self) -> str:
        return {None: "", True: "met", False: "MISSED"}[self.met()]

    def as_dict(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "unit": self.samples.unit,
            "median": self.samples.median,
            "p90": self.samples.p90,
            "p99": self.samples.p99,
            "baseline": self.baseline and {"name": self.baseline.name, "median": self.baseline.median},
            "ratio": self.ratio,
            "goal": self.goal and self.goal.text,
            "met": self.met(),
            "note": self.note,
        }


@dataclass(slots=True)
class Report:
    rows: list[Row] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """What could not be measured here, and why."""

    def missed(self, slack: float = 0.0) -> list[Row]:
        return [row for row in self.rows if row.met(slack) is False]

    def as_dict(self) -> dict[str, Any]:
        samples: dict[str, Any] = {}
        for row in self.rows:
            for one in (row.samples, row.baseline):
                if one is not None:
                    samples[one.name] = {"unit": one.unit, "values": one.values}
        return {
            "machine": machine(),
            "rows": [row.as_dict() for row in self.rows],
            "skipped": self.skipped,
            "samples": samples,
        }

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.as_dict(), indent=1) + "\n")


def machine() -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "root": os.geteuid() == 0,
    }


HEADINGS = ("what", "median", "p90", "p99", "baseline", "ratio", "goal", "")


def table(rows: Iterable[Row]) -> str:
    lines = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(_line(cells, widths) for cells in (lines[0], rule, *lines[1:]))


def markdown(rows: Iterable[Row]) -> str:
    """The same for a document."""
    lines = [HEADINGS, tuple("---" for _ in HEADINGS), *(_cells(row) for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cells(row: Row) -> tuple[str, ...]:
    own, baseline = row.samples, row.baseline
    return (
        row.what,
        show(own.median, own.unit),
        show(own.p90, own.unit) if len(own.values) > 1 else "",
        show(own.p99, own.unit) if len(own.values) > 1 else "",
        f"{baseline.name} {show(baseline.median, baseline.unit)}" if baseline else "",
        "" if row.ratio is None else f"{row.ratio:.3g}x",
        row.goal.text if row.goal else "",
        row.verdict,
    )


def show(value: float, unit: str) -> str:
    digits = 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f} {unit}".rstrip()
