"""What a sandbox may not do although the distribution's profile lets a container do it.

A filter of its own, stacked on the profile's: the kernel takes the stricter answer of the two.
"""

from __future__ import annotations

import errno

from paddock.runtimes.seccomp.profile import ALLOW, ERRNO, Compare, Program, Rule

_SYSCALLS: dict[str, int] = {
    # Large, young attack surface. ENOSYS, since programs then fall back to plain calls.
    "io_uring_setup": errno.ENOSYS,
    "io_uring_enter": errno.ENOSYS,
    "io_uring_register": errno.ENOSYS,
    # Its flags are in memory, where no filter sees them; the C library falls back to clone.
    "clone3": errno.ENOSYS,
    # Multiplexes socket for 32-bit programs with its arguments in memory; they fall back to socket.
    "socketcall": errno.ENOSYS,
    # Keyrings are not namespaced.
    "keyctl": errno.EPERM,
    "add_key": errno.EPERM,
    "request_key": errno.EPERM,
    "userfaultfd": errno.EPERM,
    "bpf": errno.EPERM,
    "perf_event_open": errno.EPERM,
    "unshare": errno.EPERM,
    "setns": errno.EPERM,
    "mount": errno.EPERM,
    "umount2": errno.EPERM,
    "pivot_root": errno.EPERM,
    "fsopen": errno.EPERM,
    "open_tree": errno.EPERM,
    "move_mount": errno.EPERM,
    "mount_setattr": errno.EPERM,
    "open_by_handle_at": errno.EPERM,
}

CLONE_NEW = 0x7E02_0000
"""Every flag of clone that asks for a namespace."""
_CLONE_FLAGS = tuple(1 << bit for bit in range(32) if CLONE_NEW >> bit & 1)

_LOW_HALF = 0xFFFF_FFFF
_TERMINAL_INJECTION = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which push characters into a terminal's input."""

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
_FAMILIES = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK}
_NETLINK_ROUTE = 0


def denied_program(architectures: tuple[str, ...]) -> Program:
    rules = [Rule(name, ERRNO, number) for name, number in _SYSCALLS.items()]
    rules += [
        Rule("clone", ERRNO, errno.EPERM, (Compare(0, "SCMP_CMP_MASKED_EQ", flag, flag),))
        for flag in _CLONE_FLAGS
    ]
    # The kernel looks at 32 bits of a request only: a filter that compared all 64 could be walked around.
    rules += [
        Rule("ioctl", ERRNO, errno.EPERM, (Compare(1, "SCMP_CMP_MASKED_EQ", _LOW_HALF, request),))
        for request in _TERMINAL_INJECTION
    ]
    # The kernel asks only for the same user: any process inside could starve the guest of descriptors or CPU.
    foreign = (Compare(0, "SCMP_CMP_NE", 0), Compare(2, "SCMP_CMP_NE", 0))
    rules.append(Rule("prlimit64", ERRNO, errno.EPERM, foreign))
    return Program(ALLOW, 0, architectures, (*rules, *_socket_rules()))


def _socket_rules() -> list[Rule]:
    """Local and internet sockets, and the part of netlink that lists interfaces. High bits only deny more."""
    last = max(_FAMILIES)
    refused = [family for family in range(last) if family not in _FAMILIES]
    rules = [
        Rule("socket", ERRNO, errno.EAFNOSUPPORT, (Compare(0, "SCMP_CMP_EQ", family),)) for family in refused
    ]
    rules.append(Rule("socket", ERRNO, errno.EAFNOSUPPORT, (Compare(0, "SCMP_CMP_GT", last),)))
    netlink = (Compare(0, "SCMP_CMP_EQ", AF_NETLINK), Compare(2, "SCMP_CMP_NE", _NETLINK_ROUTE))
    rules.append(Rule("socket", ERRNO, errno.EPROTONOSUPPORT, netlink))
    return rules
