"""What every measurement is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bench.podman import Podman, find_podman
from bench.report import Report
from bench.serving import Serving


@dataclass(slots=True)
class Run:
    server: Serving
    folder: Path
    quick: bool = False
    full: bool = False
    report: Report = field(default_factory=Report)
    _podman: Podman | str | None = None

    def rounds(self, usual: int, quick: int) -> int:
        return quick if self.quick else usual

    def podman(self) -> Podman | None:
        """None where Podman cannot be measured; the report then says why."""
        if self._podman is None:
            self._podman = find_podman(self.folder)
            if isinstance(self._podman, str):
                self.report.skipped.append(self._podman)
        return self._podman if isinstance(self._podman, Podman) else None
