"""System calls that would lead out of a sandbox, or into the host's kernel.

All of them have arguments that do nothing where the call is let through. Those that could reach the whole
machine are still never played outside of a sandbox; a test compares their numbers instead.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import pty
import resource
import socket
import stat
import struct
import tempfile
from typing import Any

from harness import X86_64, call, in_child, main, probe, refusal, syscall

CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000, 0x20000000, 0x40000000
CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP = 0x08000000, 0x04000000, 0x02000000
MS_BIND, MS_REMOUNT, MS_REC, MS_PRIVATE = 4096, 32, 16384, 1 << 18
AT_FDCWD = -100
SIGCHLD = 17

# Where the numbers differ by architecture: x86-64, and the table that newer architectures share.
NUMBERS = {
    "clone": (56, 220), "syslog": (103, 116), "pivot_root": (155, 41),
    "adjtimex": (159, 171), "acct": (163, 89), "mount": (165, 40), "umount2": (166, 39),
    "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142), "sethostname": (170, 161),
    "setdomainname": (171, 162), "init_module": (175, 105), "delete_module": (176, 106),
    "quotactl": (179, 60), "clock_settime": (227, 112),
    "settimeofday": (164, 170), "kexec_load": (246, 104), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "unshare": (272, 97),
    "perf_event_open": (298, 241), "open_by_handle_at": (304, 265),
    "setns": (308, 268), "finit_module": (313, 273), "kexec_file_load": (320, 294), "bpf": (321, 280),
    "userfaultfd": (323, 282), "chroot": (161, 51),
    "fanotify_init": (300, 262),
}  # fmt: skip
SHARED = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsmount": 432, "fspick": 433, "clone3": 435,
    "mount_setattr": 442, "open_tree_attr": 467,
}  # fmt: skip


def number(name: str) -> int:
    return SHARED[name] if name in SHARED else NUMBERS[name][0 if X86_64 else 1]


def plain(label: str, name: str, *arguments: Any, outside: bool = True) -> None:
    """A probe that is one system call."""
    probe(label, outside=outside)(lambda: refusal(lambda: syscall(number(name), *arguments)))


def machine(name: str, *arguments: Any) -> None:
    plain(name, name, *arguments, outside=False)


# -- mounts

plain("mount a tmpfs", "mount", b"none", b"/tmp", b"tmpfs", 0, None)
plain("mount proc", "mount", b"none", b"/tmp", b"proc", 0, None)
plain("mount sysfs", "mount", b"none", b"/tmp", b"sysfs", 0, None)
plain("mount cgroup", "mount", b"none", b"/tmp", b"cgroup2", 0, None)
plain("bind mount", "mount", b"/usr", b"/tmp", None, MS_BIND, None)
plain("change propagation", "mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
plain("unmount /usr", "umount2", b"/usr", 2)
plain("unmount /run/paddock", "umount2", b"/run/paddock", 2)
plain("pivot_root", "pivot_root", b"/", b"/")
plain("chroot", "chroot", b"/usr")
plain("fsopen", "fsopen", b"tmpfs", 0)
plain("fspick", "fspick", AT_FDCWD, b"/", 0)
plain("fsmount", "fsmount", -1, 0, 0)
plain("open_tree", "open_tree", AT_FDCWD, b"/usr", 1)
plain("open_tree_attr", "open_tree_attr", AT_FDCWD, b"/usr", 1, None, 0)
plain("move_mount", "move_mount", AT_FDCWD, b"/usr", AT_FDCWD, b"/tmp", 0)
plain("mount_setattr", "mount_setattr", AT_FDCWD, b"/usr", 0, bytes(32), 32)

# -- namespaces

for _name, _flag in (
    ("user", CLONE_NEWUSER), ("mount", CLONE_NEWNS), ("pid", CLONE_NEWPID), ("net", CLONE_NEWNET),
    ("ipc", CLONE_NEWIPC), ("uts", CLONE_NEWUTS), ("cgroup", CLONE_NEWCGROUP),
):  # fmt: skip
    plain(f"unshare {_name}", "unshare", _flag)


def clone(flags: int) -> None:
    pid = syscall(number("clone"), flags | SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


for _name, _flag in (("user", CLONE_NEWUSER), ("mount", CLONE_NEWNS), ("net", CLONE_NEWNET)):
    probe(f"clone {_name}", outside=True)(lambda flag=_flag: refusal(lambda: clone(flag)))  # type: ignore[misc]
# The kernel looks at the low half of clone's flags only; a filter that looks at all of them could be fooled.
probe("clone user, high bits set", outside=True)(lambda: refusal(lambda: clone(CLONE_NEWUSER | 1 << 40)))
plain("clone3", "clone3", None, 0)


@probe("setns into one's own user namespace", outside=True)
def setns_self() -> str:
    return refusal(lambda: syscall(number("setns"), os.open("/proc/self/ns/user", os.O_RDONLY), 0))


# -- the kernel's large doors

plain("keyctl", "keyctl", 0, -3, 1)
plain("add_key", "add_key", b"user", b"paddock", b"x", 1, -2)
plain("request_key", "request_key", b"user", b"paddock", None, 0)
plain("io_uring_setup", "io_uring_setup", 1, None)
plain("io_uring_enter", "io_uring_enter", -1, 0, 0, 0, None, 0)
plain("io_uring_register", "io_uring_register", -1, 0, None, 0)
plain("bpf", "bpf", 0, None, 0)
plain("perf_event_open", "perf_event_open", None, 0, -1, -1, 0)
plain("userfaultfd", "userfaultfd", 0x7F000000)
plain("open_by_handle_at", "open_by_handle_at", AT_FDCWD, None, 0)
plain("fanotify_init", "fanotify_init", 0x10, 0)

# -- the whole machine

machine("reboot", 1, 2, 3, None)
machine("kexec_load", 0, 1 << 30, None, 0x7FFF0000)
machine("kexec_file_load", -1, -1, 0, None, 0x7FFF0000)
machine("init_module", None, 0, None)
machine("finit_module", -1, None, 0x7F)
machine("delete_module", b"paddock_none", 0x800)
machine("swapon", b"/nonexistent", 0)
machine("swapoff", b"/nonexistent")
machine("acct", b"/nonexistent")
machine("quotactl", 0x800002 << 8, b"/nonexistent", 0, None)
machine("syslog", 10, None, 0)
machine("sethostname", b"probe", 5)
machine("setdomainname", b"probe", 5)
machine("clock_settime", 0, struct.pack("qq", 0, 2_000_000_000))
machine("settimeofday", struct.pack("qq", 0, 2_000_000), None)
machine("adjtimex", struct.pack("I", 0x4000) + bytes(300))


@probe("iopl and ioperm")
def port_access() -> Any:
    if not X86_64:
        return ["EPERM", "EPERM"]
    return [refusal(lambda: syscall(172, 3)), refusal(lambda: syscall(173, 0x80, 1, 1))]


@probe("raise one's own limits")
def raise_limits() -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return refusal(lambda: _set_limit(resource.RLIMIT_NOFILE, soft, hard + 1))


def _set_limit(which: int, soft: int, hard: int) -> None:
    try:
        resource.setrlimit(which, (soft, hard))
    except ValueError:
        raise PermissionError(1, "not allowed to raise maximum limit") from None


@probe("raise one's own priority", outside=True)
def raise_priority() -> str:
    return refusal(lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))


@probe("real-time scheduling", outside=True)
def real_time() -> str:
    return refusal(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))


@probe("lower one's own OOM score")
def lower_oom_score() -> str:
    """Below zero: before everything on the host that asked for nothing."""

    def lower() -> None:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("-1")

    return refusal(lower)


# -- devices


@probe("mknod", outside=True)
def mknod() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return {
            kind: refusal(lambda kind=kind, mode=mode: os.mknod(f"{folder}/{kind}", mode | 0o600, 0x0101))  # type: ignore[misc]
            for kind, mode in (("character", stat.S_IFCHR), ("block", stat.S_IFBLK))
        }


@probe("devices", outside=True)
def devices() -> list[str]:
    """Everything in /dev that is a device."""
    found = []
    for folder, _, files in os.walk("/dev"):
        for name in files:
            mode = os.lstat(f"{folder}/{name}").st_mode
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                found.append(f"{folder}/{name}")
    return sorted(name for name in found if not name.startswith("/dev/pts/"))


@probe("terminal injection", outside=True)
def terminal_injection() -> Any:
    """TIOCSTI and TIOCLINUX, also with high bits set, which the kernel does not look at."""
    _, slave = pty.openpty()
    os.setsid()
    fcntl.ioctl(slave, 0x540E, 0)
    return [
        refusal(lambda request=request: syscall(16 if X86_64 else 29, slave, request, b"x"))  # type: ignore[misc]
        for request in (0x5412, 0x541C, 0x5412 | 1 << 40, 0x541C | 1 << 40)
    ]


@probe("controlling terminal of somebody else")
def foreign_terminal() -> str:
    return refusal(lambda: os.close(os.open("/dev/tty", os.O_RDWR)))


# -- sockets

_FAMILIES = {
    "packet": (17, socket.SOCK_RAW, 0x0300), "vsock": (40, socket.SOCK_STREAM, 0),
    "alg": (38, socket.SOCK_SEQPACKET, 0), "bluetooth": (31, socket.SOCK_RAW, 1),
    "key": (15, socket.SOCK_RAW, 2), "xdp": (44, socket.SOCK_RAW, 0),
    "raw": (2, socket.SOCK_RAW, 1), "raw6": (10, socket.SOCK_RAW, 58),
    "netlink audit": (16, socket.SOCK_RAW, 9), "netlink netfilter": (16, socket.SOCK_RAW, 12),
    "netlink uevent": (16, socket.SOCK_RAW, 15), "netlink generic": (16, socket.SOCK_RAW, 16),
    "tipc": (30, socket.SOCK_STREAM, 0), "can": (29, socket.SOCK_RAW, 1), "smc": (43, 1, 0),
}  # fmt: skip
for _name, (_family, _type, _protocol) in _FAMILIES.items():
    probe(f"socket {_name}", outside=True)(
        lambda family=_family, type=_type, protocol=_protocol: refusal(  # type: ignore[misc]
            lambda: os.close(call("socket", family, type, protocol))
        )
    )


@probe("change the network", outside=True)
def change_network() -> str:
    """Bring loopback down, by the call that needs no netlink."""
    with socket.socket() as sock:
        request = struct.pack("16sh14x", b"lo", 0)
        return refusal(lambda: fcntl.ioctl(sock, 0x8914, request))


# -- other ways into the kernel than the usual one


def machine_code(code: bytes) -> int:
    """Run it; what it leaves in the accumulator."""
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())


def int80(number: int, first: int = 0) -> int:
    """push rbx; mov eax, number; mov ebx, first; xor ecx, edx, esi, edi; int 0x80; pop rbx; ret"""
    code = b"\x53\xb8" + struct.pack("<I", number) + b"\xbb" + struct.pack("<I", first & 0xFFFFFFFF)
    return machine_code(code + b"\x31\xc9\x31\xd2\x31\xf6\x31\xff\xcd\x80\x5b\xc3")


@probe("32-bit entry", outside=True)
def entry_32() -> Any:
    """unshare(CLONE_NEWUSER), mount, keyctl, socketcall and clone3, as a 32-bit program would call them."""
    if not X86_64:
        return "other architecture"
    found = {}
    for name, entry, first in (
        ("unshare", 310, CLONE_NEWUSER), ("mount", 21, 0), ("keyctl", 288, 0), ("bpf", 357, 0),
        ("socketcall", 102, 1), ("clone3", 435, 0), ("io_uring_setup", 425, 1),
        ("clone", 120, CLONE_NEWUSER | SIGCHLD),
    ):  # fmt: skip
        reading, writing = os.pipe()

        def attempt(entry: int = entry, first: int = first, writing: int = writing) -> None:
            os.write(writing, str(int80(entry, first)).encode())

        code = in_child(attempt)
        os.close(writing)
        said = os.read(reading, 100)
        found[name] = int(said) if code == 0 and said else f"ended {code}"
    return found


@probe("x32 entry", outside=True)
def entry_x32() -> Any:
    if not X86_64:
        return "other architecture"
    bit = 0x40000000
    return {
        "unshare": refusal(lambda: syscall(bit | 272, CLONE_NEWUSER)),
        "mount": refusal(lambda: syscall(bit | 165, None, None, None, 0, None)),
        "keyctl": refusal(lambda: syscall(bit | 250, 0, -3, 1)),
        "getpid": refusal(lambda: syscall(bit | 39)),
    }


@probe("a thread's filter", outside=True)
def thread_filter() -> Any:
    """A thread that was started later, and a program it starts, are as filtered as we are."""
    import threading

    found: list[str] = []

    def look() -> None:
        with open("/proc/thread-self/status") as status:
            found.extend(line.split()[1] for line in status if line.startswith(("Seccomp:", "NoNewPrivs:")))
        found.append(refusal(lambda: syscall(number("keyctl"), 0, -3, 1)))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found


@probe("take the filter off", outside=True)
def drop_filter() -> Any:
    """seccomp off, no_new_privs off, and a filter on top that would allow everything."""
    allow_all = struct.pack("HBBI", 6, 0, 0, 0x7FFF0000)
    buffer = ctypes.create_string_buffer(allow_all)
    program = struct.pack("HxxxxxxQ", 1, ctypes.addressof(buffer))
    found = [
        refusal(lambda: call("prctl", 22, 0, 0, 0, 0)),
        refusal(lambda: call("prctl", 38, 0, 0, 0, 0)),
        refusal(lambda: call("prctl", 22, 2, program, 0, 0)),
    ]
    return [*found, refusal(lambda: syscall(number("keyctl"), 0, -3, 1))]


# Last: where these succeed, probes after them would find another tree.
plain("remount /usr writable", "mount", None, b"/usr", None, MS_BIND | MS_REMOUNT, None)
plain("remount / writable", "mount", None, b"/", None, MS_BIND | MS_REMOUNT, None)
plain("unmount /proc", "umount2", b"/proc", 2)

main()
