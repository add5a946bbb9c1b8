"""Many creates at once."""

from __future__ import annotations

import contextlib
import selectors
import time

from bench.report import Row, at_least
from bench.run import Run
from bench.samples import Samples
from bench.serving import SANDBOXES, delete_all
from bench.wire import Wire

AT_ONCE = 100


def measure(run: Run) -> None:
    create = run.server.place.request("POST", SANDBOXES, b"{}")
    rates, worst = [], []
    for _ in range(run.rounds(10, 3)):
        with contextlib.ExitStack() as stack:
            wires = [run.server.connect() for _ in range(AT_ONCE)]
            for wire in wires:
                stack.callback(wire.close)
            seconds = _all_at_once(wires, create)
        rates.append(AT_ONCE / max(seconds))
        worst.append(max(seconds) * 1000)
        delete_all(run.server)
    goal = at_least(100, "at least 100 a second, none fails")
    run.report.rows.append(
        Row(
            f"{AT_ONCE} creates at once", Samples("burst", "/s", tuple(rates), more_is_better=True), goal=goal
        )
    )
    run.report.rows.append(Row("... the last of them", Samples("burst last", "ms", tuple(worst))))


def _all_at_once(wires: list[Wire], request: bytes) -> list[float]:
    """Send on every connection, take the answers as they come: seconds from the first byte to each answer."""
    with selectors.DefaultSelector() as selector:
        began = time.perf_counter()
        for wire in wires:
            wire.socket.sendall(request)
            selector.register(wire.socket, selectors.EVENT_READ, wire)
        seconds: list[float] = []
        while len(seconds) < len(wires):
            for key, _ in selector.select():
                key.data.answer().json(201)
                seconds.append(time.perf_counter() - began)
                selector.unregister(key.fileobj)
    return seconds
