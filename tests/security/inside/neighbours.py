"""Attacks on the guest (PID 1) and on the shepherd above this command; and, to show that they would work, on
a child of one's own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import time
from collections.abc import Callable
from typing import Any

from harness import X86_64, main, probe, read, refusal, syscall, write

GUEST = 1
SHEPHERD = os.getppid()
PIDFD_OPEN, PIDFD_GETFD, PIDFD_SEND = 434, 438, 424
PTRACE_ATTACH, PTRACE_SEIZE, PTRACE_DETACH = 16, 0x4206, 17


def ptrace(request: int, pid: int) -> None:
    syscall(101 if X86_64 else 117, request, pid, 0, 0)


def attach(pid: int) -> None:
    ptrace(PTRACE_ATTACH, pid)
    os.waitpid(pid, 0)
    ptrace(PTRACE_DETACH, pid)


def vm_read(pid: int) -> None:
    """One byte of where our own code is: every program has something mapped somewhere."""
    byte = ctypes.create_string_buffer(1)
    vector = ctypes.c_size_t * 2
    ours, theirs = vector(ctypes.addressof(byte), 1), vector(ctypes.addressof(BYTE), 1)
    syscall(310 if X86_64 else 270, pid, ours, 1, theirs, 1, 0)


def vm_write(pid: int) -> None:
    vector = ctypes.c_size_t * 2
    one = vector(ctypes.addressof(BYTE), 1)
    syscall(311 if X86_64 else 271, pid, one, 1, one, 1, 0)


BYTE = ctypes.create_string_buffer(b"x")


def take_descriptor(pid: int) -> None:
    pidfd = syscall(PIDFD_OPEN, pid, 0)
    for number in range(64):
        try:
            os.close(syscall(PIDFD_GETFD, pidfd, number, 0))
            return
        except OSError as error:
            if error.errno != 9:
                raise
    raise OSError(9, "none is open")


def list_descriptors(pid: int) -> None:
    os.listdir(f"/proc/{pid}/fd")


def take_limits(pid: int) -> None:
    """Of descriptors: without any, a guest could start nothing."""
    syscall(302 if X86_64 else 261, pid, 7, struct.pack("QQ", 0, 0), None)


TRICKS: dict[str, Callable[[int], Any]] = {
    "ptrace attach": attach,
    "ptrace seize": lambda pid: ptrace(PTRACE_SEIZE, pid),
    "process_vm_readv": vm_read,
    "process_vm_writev": vm_write,
    "pidfd_getfd": take_descriptor,
    "list descriptors": list_descriptors,
    "open a descriptor": lambda pid: os.close(os.open(f"/proc/{pid}/fd/0", os.O_RDONLY)),
    "read memory": lambda pid: os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY)),
    "write memory": lambda pid: os.close(os.open(f"/proc/{pid}/mem", os.O_WRONLY)),
    "read the map": lambda pid: read(f"/proc/{pid}/maps"),
    "read the environment": lambda pid: read(f"/proc/{pid}/environ"),
    "read the auxiliary vector": lambda pid: read(f"/proc/{pid}/auxv"),
    "follow the root": lambda pid: os.listdir(os.path.join(f"/proc/{pid}", "root", "")),
    "follow the folder": lambda pid: os.listdir(f"/proc/{pid}/cwd/"),
    "read the program's link": lambda pid: os.readlink(f"/proc/{pid}/exe"),
    "open its namespaces": lambda pid: os.close(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)),
    "read its system call": lambda pid: read(f"/proc/{pid}/syscall"),
    "change its OOM score": lambda pid: write(f"/proc/{pid}/oom_score_adj", b"1000"),
    "change its limits": take_limits,
}


def own_child() -> int:
    pid = os.fork()
    if pid == 0:
        while True:
            time.sleep(1)
    return pid


def attack(name: str) -> dict[str, str]:
    child = own_child()
    try:
        return {
            "guest": refusal(lambda: TRICKS[name](GUEST)),
            "shepherd": refusal(lambda: TRICKS[name](SHEPHERD)),
            "own child": refusal(lambda: TRICKS[name](child)),
        }
    finally:
        os.kill(child, signal.SIGKILL)


for _name in TRICKS:
    probe(_name)(lambda name=_name: attack(name))  # type: ignore[misc]


@probe("signal the guest")
def signal_guest() -> dict[str, str]:
    """Every one. The guest is PID 1: what it has no handler for does not reach it."""
    found: dict[str, str] = {}
    for number in range(1, signal.NSIG):
        found[str(number)] = refusal(lambda number=number: os.kill(GUEST, number))  # type: ignore[misc]
    pidfd = syscall(PIDFD_OPEN, GUEST, 0)
    found["pidfd"] = refusal(lambda: syscall(PIDFD_SEND, pidfd, signal.SIGKILL, None, 0))
    return found


main()
