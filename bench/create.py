"""From nothing to the result of a first command."""

from __future__ import annotations

import json

from bench.bare import prepare_bare
from bench.clock import Contender, take_turns, timed
from bench.plain import true_program
from bench.report import Row, at_least, at_most
from bench.run import Run
from bench.serving import SANDBOXES

PODMAN_EVERY = 5
TRUE = json.dumps({"command": ["true"]}).encode()


def measure(run: Run) -> None:
    wire = run.server.connect()
    create = run.server.place.request("POST", SANDBOXES, b"{}")
    made: list[str] = []

    def create_and_exec() -> None:
        sandbox = wire.ask(create).json(201)["id"]
        made.append(sandbox)
        result = wire.ask(run.server.place.request("POST", f"{SANDBOXES}/{sandbox}/execs", TRUE)).json(200)
        if result["exit_code"] != 0:
            raise RuntimeError(f"true ended with {result}")

    def paddock() -> float:
        milliseconds = timed(create_and_exec)
        wire.call("DELETE", f"{SANDBOXES}/{made.pop()}")
        return milliseconds

    bare = prepare_bare(run.folder, [true_program()])
    contenders = [Contender("paddock create", paddock), Contender("bwrap", lambda: timed(bare.run))]
    podman = run.podman()
    if podman is not None:
        contenders.append(Contender("podman run", lambda: timed(podman.run), every=PODMAN_EVERY))
    try:
        found = take_turns(contenders, run.rounds(200, 20))
    finally:
        wire.close()
    own = found["paddock create"]
    what = "create to first result"
    run.report.rows.append(Row(what, own, found["bwrap"], at_most(2, "within 2x of bwrap")))
    if podman is not None:
        goal = at_least(10, "10x faster than podman run")
        run.report.rows.append(Row(what, own, found["podman run"], goal, inverse=True))
