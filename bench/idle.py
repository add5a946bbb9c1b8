"""What sandboxes cost while nothing happens in them."""

from __future__ import annotations

import time

from bench.accounts import cpu_of_all, descendants, kernel_memory, memory_of, memory_of_all
from bench.report import Row, at_most
from bench.run import Run
from bench.samples import Samples
from bench.serving import SANDBOXES, delete_all

WATCH_SECONDS = 10.0
SETTLE_SECONDS = 3.0
MIB = 1 << 20


def measure(run: Run) -> None:
    count = 1000 if run.full else run.rounds(200, 50)
    server = run.server
    wire = server.connect()
    try:
        # The first ones warm the server up: what it loads once is not a sandbox's cost.
        for _ in range(10):
            wire.call("POST", SANDBOXES, {}, expected=201)
        delete_all(server)
        before, kernel_before = memory_of(server.pid), kernel_memory()
        for _ in range(count):
            wire.call("POST", SANDBOXES, {}, expected=201)
        time.sleep(SETTLE_SECONDS)
        growth = memory_of(server.pid) - before
        inside = descendants(server.pid)
        guests = memory_of_all(inside)
        kernel = kernel_memory() - kernel_before
        watched = [server.pid, *inside]
        began, cpu = time.monotonic(), cpu_of_all(watched)
        time.sleep(WATCH_SECONDS)
        busy = (cpu_of_all(watched) - cpu) / (time.monotonic() - began) * 100
    finally:
        wire.close()
        delete_all(server)
    _report(run, count, growth, guests, kernel, busy)


def _report(run: Run, count: int, growth: int, guests: int, kernel: int, busy: float) -> None:
    def each(name: str, size: int) -> Samples:
        return Samples(f"idle {name}", "MiB", (size / count / MIB,))

    rows = run.report.rows
    goal = at_most(0.5, "at most 0.5 MiB")
    rows.append(Row(f"memory of each of {count}", each("memory", growth + guests), goal=goal))
    rows.append(Row("... guest and bwrap", each("guests", guests)))
    rows.append(Row("... server's growth", each("server", growth)))
    rows.append(Row("... kernel's own, besides", each("kernel", kernel)))
    idle = Samples("idle cpu", "% of a core", (busy,))
    rows.append(Row(f"CPU of {count} idle", idle, goal=at_most(1, "near zero (1 %)")))
