"""The baselines without any sandbox: `true` by fork and exec, and by posix_spawn."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from types import TracebackType

# What a fork costs grows with the process that forks. This one has next to nothing loaded, as a shell has.
_FORKER = """
import os, sys, time
program = sys.argv[1]
while sys.stdin.readline():
    began = time.perf_counter_ns()
    pid = os.fork()
    if pid == 0:
        try:
            os.execv(program, [program])
        finally:
            os._exit(127)
    status = os.waitpid(pid, 0)[1]
    print(time.perf_counter_ns() - began, status, flush=True)
"""


def true_program() -> str:
    return shutil.which("true", path="/usr/bin:/bin") or "/bin/true"


class Forker:
    """A small process of its own that forks and executes `true` when asked, and says how long it took."""

    def __init__(self, program: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _FORKER, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Forker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._process.communicate()

    def milliseconds(self) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        nanoseconds, status = map(int, self._process.stdout.readline().split())
        _expect_success(status)
        return nanoseconds / 1e6


def spawn(program: str) -> None:
    _expect_success(os.waitpid(os.posix_spawn(program, [program], {}), 0)[1])


def _expect_success(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"true ended with {os.waitstatus_to_exitcode(status)}")
