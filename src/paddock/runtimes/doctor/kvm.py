"""Whether /dev/kvm runs a machine. One that opens may still hang, so it is tried in a process of its own.

`python -m paddock.runtimes.doctor.kvm` runs a machine whose program is the one instruction HLT, and ends
with 0 when that ran.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import platform
import struct
import sys

from paddock.runtimes.base import Ability
from paddock.runtimes.doctor.commands import run

_DEVICE = "/dev/kvm"
_SECONDS = 2.0
_FIX = (
    "switch on virtualization in the machine's firmware; where it is a virtual machine itself, "
    "ask for nested virtualization"
)

_CREATE_VM = 0xAE01
_VCPU_MAP_SIZE = 0xAE04
_CREATE_VCPU = 0xAE41
_SET_MEMORY = 0x4020_AE46
_RUN = 0xAE80
_GET_SREGS = 0x8138_AE83
_SET_SREGS = 0x4138_AE84
_SET_REGS = 0x4090_AE82
_EXIT_REASON_OFFSET = 8
_EXIT_HLT = 5
_HLT = b"\xf4"
_CODE_AT = 0x1000


async def probe_kvm() -> Ability:
    if not os.access(_DEVICE, os.F_OK):
        return Ability("kvm", False, f"there is no {_DEVICE}", _FIX)
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        return Ability("kvm", False, f"{_DEVICE} may not be opened", "add the server's user to the group kvm")
    # Room for the interpreter to start on a busy host; the machine itself has the short bound.
    done = await run(sys.executable, "-m", "paddock.runtimes.doctor.kvm", seconds=_SECONDS + 10)
    if done.code == 0:
        return Ability("kvm", True, done.first_line)
    return Ability("kvm", False, f"{_DEVICE} opens but does not run a machine: {done.complaint}", _FIX)


def run_machine() -> str:
    with open(_DEVICE, "r+b", buffering=0) as kvm:
        machine = fcntl.ioctl(kvm, _CREATE_VM, 0)
        processor = fcntl.ioctl(machine, _CREATE_VCPU, 0)
        if platform.machine() != "x86_64":
            return "a machine and a processor were made"
        memory = mmap.mmap(-1, mmap.PAGESIZE)
        memory.write(_HLT)
        fcntl.ioctl(
            machine, _SET_MEMORY, struct.pack("=IIQQQ", 0, 0, _CODE_AT, mmap.PAGESIZE, _address(memory))
        )
        state = mmap.mmap(processor, fcntl.ioctl(kvm, _VCPU_MAP_SIZE, 0))
        segments = bytearray(312)
        fcntl.ioctl(processor, _GET_SREGS, segments)
        # Code segment: base and selector 0, so that the instruction pointer is an address.
        struct.pack_into("=Q", segments, 0, 0)
        struct.pack_into("=H", segments, 12, 0)
        fcntl.ioctl(processor, _SET_SREGS, bytes(segments))
        fcntl.ioctl(processor, _SET_REGS, struct.pack("=18Q", *([0] * 16), _CODE_AT, 2))
        fcntl.ioctl(processor, _RUN, 0)
        (reason,) = struct.unpack_from("=I", state, _EXIT_REASON_OFFSET)
        if reason != _EXIT_HLT:
            raise OSError(f"the machine stopped for reason {reason}, not for the instruction it was given")
        return "a machine ran an instruction"


def _address(memory: mmap.mmap) -> int:
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def main() -> int:
    import signal

    # The default action ends the process, whatever the thread that waits in the kernel does.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS)
    try:
        print(run_machine())
    except OSError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
