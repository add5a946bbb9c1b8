"""Compiles filters with the system's libseccomp."""

from __future__ import annotations

import ctypes
import errno
import os

from paddock import errors
from paddock.runtimes.seccomp.profile import Program, Rule

_ACTIONS = {
    "SCMP_ACT_KILL": 0x0000_0000,
    "SCMP_ACT_KILL_THREAD": 0x0000_0000,
    "SCMP_ACT_KILL_PROCESS": 0x8000_0000,
    "SCMP_ACT_TRAP": 0x0003_0000,
    "SCMP_ACT_ERRNO": 0x0005_0000,
    "SCMP_ACT_LOG": 0x7FFC_0000,
    "SCMP_ACT_ALLOW": 0x7FFF_0000,
}
_COMPARISONS = {
    "SCMP_CMP_NE": 1,
    "SCMP_CMP_LT": 2,
    "SCMP_CMP_LE": 3,
    "SCMP_CMP_EQ": 4,
    "SCMP_CMP_GE": 5,
    "SCMP_CMP_GT": 6,
    "SCMP_CMP_MASKED_EQ": 7,
}
_ATTRIBUTE_BAD_ARCHITECTURE = 2
_ATTRIBUTE_OPTIMIZE = 8
_BINARY_TREE = 2
_UNKNOWN_SYSCALL = -1


class _Argument(ctypes.Structure):
    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


def compile_program(program: Program) -> bytes:
    """The program as the kernel's BPF instructions, in the form that `bwrap --add-seccomp-fd` reads."""
    library = _load()
    context = library.seccomp_init(_action(program.default_action, program.default_errno))
    if not context:
        raise _failed("seccomp_init", errno.ENOMEM)
    try:
        # A system call of an architecture that the filter does not know ends the process.
        _check(
            "bad architecture",
            library.seccomp_attr_set(context, _ATTRIBUTE_BAD_ARCHITECTURE, _ACTIONS["SCMP_ACT_KILL_PROCESS"]),
        )
        for name in program.architectures:
            token = library.seccomp_arch_resolve_name(name.removeprefix("SCMP_ARCH_").lower().encode())
            _check(name, library.seccomp_arch_add(context, token), but=errno.EEXIST)
        for rule in program.rules:
            _add(library, context, program, rule)
        # Only makes the filter quicker, and only libseccomp 2.5 and later know it.
        library.seccomp_attr_set(context, _ATTRIBUTE_OPTIMIZE, _BINARY_TREE)
        return _export(library, context)
    finally:
        library.seccomp_release(context)


def _add(library: ctypes.CDLL, context: int, program: Program, rule: Rule) -> None:
    if rule.action not in _ACTIONS:
        raise _failed(f"action {rule.action} of {rule.name}", errno.EINVAL)
    action = _action(rule.action, rule.errno)
    if action == _action(program.default_action, program.default_errno):
        return
    number = library.seccomp_syscall_resolve_name(rule.name.encode())
    if number == _UNKNOWN_SYSCALL:
        # Newer than this libseccomp. Under a stricter default it may be left out; otherwise it must not.
        if rule.action == "SCMP_ACT_ALLOW" or program.default_action != "SCMP_ACT_ALLOW":
            return
        raise _failed(f"system call {rule.name} is unknown to libseccomp", errno.ENOSYS)
    arguments = (_Argument * max(1, len(rule.args)))(
        *(_Argument(arg.index, _COMPARISONS[arg.op], arg.value, arg.value_two) for arg in rule.args)
    )
    result = library.seccomp_rule_add_array(context, action, number, len(rule.args), arguments)
    _check(f"rule for {rule.name}", result, but=errno.EEXIST)


def _export(library: ctypes.CDLL, context: int) -> bytes:
    fd = os.memfd_create("paddock-seccomp", os.MFD_CLOEXEC)
    try:
        _check("seccomp_export_bpf", library.seccomp_export_bpf(context, fd))
        return os.pread(fd, os.fstat(fd).st_size, 0)
    finally:
        os.close(fd)


def _action(name: str, number: int) -> int:
    return _ACTIONS[name] | (number & 0xFFFF if name == "SCMP_ACT_ERRNO" else 0)


def _check(what: str, result: int, but: int = 0) -> None:
    if result < 0 and -result != but:
        raise _failed(what, -result)


def _failed(what: str, number: int) -> errors.Unavailable:
    return errors.Unavailable(
        f"the seccomp filter cannot be compiled: {what}: {os.strerror(number)}",
        reason="seccomp_compile_failed",
        hint="check the profile and the version of libseccomp (2.5 or later)",
    )


def _load() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    except OSError as problem:
        raise errors.Unavailable(
            f"libseccomp cannot be loaded: {problem}",
            reason="libseccomp_missing",
            hint="install libseccomp2 (Debian, Ubuntu) or libseccomp (Fedora, Arch)",
        ) from problem
    context, number = ctypes.c_void_p, ctypes.c_uint32
    library.seccomp_init.restype = context
    library.seccomp_init.argtypes = (number,)
    library.seccomp_release.restype = None
    library.seccomp_release.argtypes = (context,)
    library.seccomp_attr_set.argtypes = (context, ctypes.c_int, number)
    library.seccomp_arch_resolve_name.restype = number
    library.seccomp_arch_resolve_name.argtypes = (ctypes.c_char_p,)
    library.seccomp_arch_add.argtypes = (context, number)
    library.seccomp_syscall_resolve_name.argtypes = (ctypes.c_char_p,)
    library.seccomp_rule_add_array.argtypes = (context, number, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)
    library.seccomp_export_bpf.argtypes = (context, ctypes.c_int)
    return library
