"""Measures, prints the table, keeps every sample in bench/results."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import time
from pathlib import Path

from bench.report import SLACK, Report, machine, markdown, table
from bench.run import Run
from bench.serving import scratch, serving

SUBJECTS = ("create", "exec", "burst", "idle", "output", "store")
RESULTS = Path(__file__).parent / "results"


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(SUBJECTS)}; all by default"
    )
    parser.add_argument("--quick", action="store_true", help="few samples: whether it works, not how well")
    parser.add_argument("--full", action="store_true", help="1,000 idle sandboxes instead of 200")
    parser.add_argument(
        "--check", action="store_true", help=f"exit with 1 when a goal is missed by over {SLACK:.0%}"
    )
    parser.add_argument("--markdown", action="store_true", help="print the table as SPECIFICATION.md has it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write rows and samples here as well")
    given = parser.parse_args(words)
    if unknown := [name for name in given.subjects if name not in SUBJECTS]:
        parser.error(f"no such subject: {', '.join(unknown)} (there are {', '.join(SUBJECTS)})")
    return given


def measure(given: argparse.Namespace) -> Report:
    with scratch() as folder, serving(folder) as server:
        run = Run(server, folder, quick=given.quick, full=given.full)
        for name in SUBJECTS:
            if not given.subjects or name in given.subjects:
                print(f"measuring {name} ...", file=sys.stderr, flush=True)
                importlib.import_module(f"bench.{name}").measure(run)
        return run.report


def main(words: list[str]) -> int:
    given = arguments(words)
    # The ordinary end of a terminated process runs no clean-up: sandboxes and containers would stay.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = measure(given)
    for path in (RESULTS / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json", given.json):
        if path is not None:
            report.write(path)
    facts = machine()
    print(f"{facts['cores']} cores, Linux {facts['kernel']}, Python {facts['python']}\n")
    print(markdown(report.rows) if given.markdown else table(report.rows))
    for reason in report.skipped:
        print(f"not measured: {reason}")
    missed = report.missed(SLACK)
    return 1 if given.check and missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
