"""Where scenarios are played: in this process, or as an ordinary user in a worker of its own."""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from typing import IO, Any, Protocol

import pytest

from tests.abilities import ORDINARY_UID, ordinary_python
from tests.contract.world import World

Scenario = Callable[[World], Awaitable[None]]
SCENARIO_SECONDS = 100.0


class Stage(Protocol):
    def play(self, function: Scenario) -> None: ...

    def close(self) -> None: ...


class LocalStage:
    """One world and one event loop for many scenarios. A scenario that fails gets its world thrown away."""

    def __init__(self, variant: str) -> None:
        self._variant = variant
        self._runner = asyncio.Runner()
        self._world: World | None = None

    def prepare(self) -> None:
        if self._world is None:
            self._world = self._runner.run(World.open(self._variant))

    def play(self, function: Scenario) -> None:
        self.prepare()
        try:
            self._runner.run(self._play(function))
        except (Exception, pytest.fail.Exception):
            self._drop()
            raise

    async def _play(self, function: Scenario) -> None:
        world = self._world
        assert world is not None
        async with asyncio.timeout(SCENARIO_SECONDS):
            skipped: BaseException | None = None
            try:
                await function(world)
            except pytest.skip.Exception as skip:
                skipped = skip
            await world.shared()
            await world.settle()
        if skipped is not None:
            raise skipped

    def _drop(self) -> None:
        world, self._world = self._world, None
        if world is not None:
            try:
                self._runner.run(asyncio.wait_for(world.close(), 60))
            except Exception:
                # The scenario's own failure is the one to tell.
                traceback.print_exc()

    def close(self) -> None:
        world, self._world = self._world, None
        try:
            if world is not None:
                self._runner.run(world.close())
        finally:
            self._runner.close()


class UserStage:
    """A worker process as an ordinary user plays the same scenarios, found by module and name."""

    def __init__(self, variant: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        found = ordinary_python()
        assert found is not None
        python, environment = found
        self._process = subprocess.Popen(
            [python, "-m", "tests.contract.stage", variant],
            user=ORDINARY_UID,
            group=ORDINARY_UID,
            extra_groups=[],
            cwd="/",
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._read()

    def play(self, function: Scenario) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([function.__module__, function.__name__]) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if "skipped" in answer:
            pytest.skip(answer["skipped"])
        if "failed" in answer:
            pytest.fail(answer["failed"], pytrace=False)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.kill()
            self._process.wait()
            self._errors.seek(0)
            pytest.fail("the worker ended:\n" + self._errors.read().decode(errors="replace")[-5000:])
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.communicate()
        self._errors.close()
        assert self._process.returncode == 0


def _serve(variant: str, answers: IO[str]) -> None:
    def answer(**fields: str) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    stage = LocalStage(variant)
    stage.prepare()
    answer()
    for line in sys.stdin:
        module, name = json.loads(line)
        test = getattr(importlib.import_module(module), name)
        try:
            stage.play(test.scenario)
            answer()
        except pytest.skip.Exception as skip:
            answer(skipped=str(skip))
        except BaseException:
            answer(failed=traceback.format_exc())
    stage.close()


def scenario(function: Scenario) -> Callable[[Stage], None]:
    """Makes a test of a coroutine function that takes a world."""

    def test(stage: Stage) -> None:
        stage.play(function)

    # Not functools.wraps: pytest would look through to the scenario's own argument.
    functools.update_wrapper(test, function, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    del test.__wrapped__  # type: ignore[attr-defined]
    test.scenario = function  # type: ignore[attr-defined]
    return pytest.mark.leaks_ok(test)


if __name__ == "__main__":
    # What is printed by accident must not be taken for an answer.
    with os.fdopen(os.dup(1), "w") as real:
        os.dup2(2, 1)
        _serve(sys.argv[1], real)
