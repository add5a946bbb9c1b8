"""Runs probes inside a sandbox and prints what each of them got, as one JSON object.

Copied into the sandbox and run by the system's Python: nothing but the standard library is there. Each probe
runs in a process of its own, so that none can disturb the next.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

PROBES: dict[str, Callable[[], Any]] = {}
PROBE_SECONDS = 20

X86_64 = os.uname().machine == "x86_64"


OUTSIDE = "OUTSIDE" in os.environ
"""This is the control: not in a sandbox of ours, so only probes that change nothing may run."""


def probe(name: str, *, outside: bool = False) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """`outside`: it does no harm where it succeeds, in namespaces of its own and as an ordinary user."""

    def register(function: Callable[[], Any]) -> Callable[[], Any]:
        if outside or not OUTSIDE:
            PROBES[name] = function
        return function

    return register


def refusal(call: Callable[[], Any]) -> str:
    """The name of the error it was refused with, or "allowed"."""
    try:
        call()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "allowed"


def syscall(number: int, *arguments: Any) -> int:
    """By number, as code that wants out would: no wrapper of a library is in between."""
    wide = [value if not isinstance(value, int) else ctypes.c_long(value) for value in arguments]
    result = int(libc.syscall(ctypes.c_long(number), *wide))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def call(name: str, *arguments: Any) -> int:
    """A function of the C library that sets errno."""
    result = int(getattr(libc, name)(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def read(path: str, size: int = 4096) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


def write(path: str, data: bytes) -> int:
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.write(descriptor, data)
    finally:
        os.close(descriptor)


def in_child(work: Callable[[], Any]) -> int:
    """The exit code of a child that does it; minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            os._exit(99)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _run(function: Callable[[], Any]) -> Any:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(PROBE_SECONDS)
        try:
            result = function()
        except BaseException:
            result = "broken: " + traceback.format_exc()
        os.write(writing, json.dumps(result).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        said = answer.read()
    status = os.waitpid(pid, 0)[1]
    return json.loads(said) if said else f"ended by {status}"


def facts() -> dict[str, Any]:
    """What the host has told the probes to look for."""
    found: dict[str, Any] = json.loads(os.environ.get("FACTS", "{}"))
    return found


def main() -> None:
    json.dump({name: _run(function) for name, function in PROBES.items()}, sys.stdout)
