"""One command in a sandbox that is there already."""

from __future__ import annotations

import contextlib

from bench.clock import Contender, take_turns, timed
from bench.create import TRUE
from bench.plain import Forker, spawn, true_program
from bench.report import Row, at_least, at_most
from bench.run import Run
from bench.serving import SANDBOXES

PODMAN_EVERY = 25


def measure(run: Run) -> None:
    wire = run.server.connect()
    sandbox = wire.call("POST", SANDBOXES, {}, expected=201)["id"]
    request = run.server.place.request("POST", f"{SANDBOXES}/{sandbox}/execs", TRUE)
    program = true_program()

    def paddock() -> None:
        if wire.ask(request).json(200)["exit_code"] != 0:
            raise RuntimeError("true failed")

    podman = run.podman()
    with contextlib.ExitStack() as stack:
        stack.callback(wire.close)
        stack.callback(wire.call, "DELETE", f"{SANDBOXES}/{sandbox}")
        forker = stack.enter_context(Forker(program))
        contenders = [
            Contender("paddock exec", lambda: timed(paddock)),
            Contender("fork+exec", forker.milliseconds),
            Contender("posix_spawn", lambda: timed(lambda: spawn(program))),
        ]
        if podman is not None:
            container = stack.enter_context(podman.container())
            contenders.append(
                Contender("podman exec", lambda: timed(lambda: podman.exec(container)), PODMAN_EVERY)
            )
        found = take_turns(contenders, run.rounds(1000, 100), warm_up=20)
    own = found["paddock exec"]
    rows = run.report.rows
    rows.append(Row("exec of true", own, found["fork+exec"], at_most(2, "within 2x of fork and exec")))
    rows.append(Row("exec of true", own, found["posix_spawn"]))
    if podman is not None:
        goal = at_least(100, "100x faster than podman exec")
        rows.append(Row("exec of true", own, found["podman exec"], goal, inverse=True))
