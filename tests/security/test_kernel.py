"""System calls that lead out, or into the host's kernel: each is refused, and refused as the filter says."""

from __future__ import annotations

import ast
import ctypes
import ctypes.util
import platform
from pathlib import Path

import pytest

from tests.security.conftest import Found
from tests.security.gather import FOLDER

pytestmark = pytest.mark.leaks_ok

DENIED = (
    "mount a tmpfs", "mount proc", "mount sysfs", "mount cgroup", "bind mount", "remount /usr writable",
    "remount / writable", "change propagation", "unmount /proc", "unmount /usr", "unmount /run/paddock",
    "pivot_root", "chroot", "fsopen", "fspick", "fsmount", "open_tree", "move_mount", "mount_setattr",
    "unshare user", "unshare mount", "unshare pid", "unshare net", "unshare ipc", "unshare uts",
    "unshare cgroup", "clone user", "clone mount", "clone net", "clone user, high bits set",
    "setns into one's own user namespace", "keyctl", "add_key", "request_key", "bpf", "perf_event_open",
    "userfaultfd", "open_by_handle_at", "fanotify_init", "reboot", "kexec_load", "kexec_file_load",
    "init_module", "finit_module", "delete_module", "swapon", "swapoff", "acct", "quotactl", "syslog",
    "sethostname", "setdomainname", "clock_settime", "settimeofday", "adjtimex", "change the network",
    "raise one's own limits", "real-time scheduling", "socket raw", "socket raw6",
)  # fmt: skip
FAMILIES = ("packet", "vsock", "alg", "bluetooth", "key", "xdp", "tipc", "can", "smc")
NETLINK = ("audit", "netfilter", "uevent", "generic")


@pytest.mark.parametrize("name", DENIED)
def test_is_denied(found: Found, name: str) -> None:
    found.refused("kernel", name, "EPERM")


@pytest.mark.parametrize(
    "name", ["clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "open_tree_attr"]
)
def test_does_not_exist(found: Found, name: str) -> None:
    """Programs fall back to older calls, which the filter can judge."""
    found.refused("kernel", name, "ENOSYS")


@pytest.mark.parametrize("family", FAMILIES)
def test_sockets_of_other_families(found: Found, family: str) -> None:
    found.refused("kernel", f"socket {family}", "EAFNOSUPPORT")


@pytest.mark.parametrize("family", NETLINK)
def test_netlink_beyond_routes(found: Found, family: str) -> None:
    found.refused("kernel", f"socket netlink {family}", "EPROTONOSUPPORT")


def test_no_device_can_be_made(found: Found) -> None:
    found.refused("kernel", "mknod", {"character": "EPERM", "block": "EPERM"})


def test_only_the_harmless_devices_are_there(found: Found) -> None:
    harmless = [f"/dev/{name}" for name in ("full", "null", "random", "tty", "urandom", "zero")]
    found.refused("kernel", "devices", harmless)


def test_terminals_take_no_injected_input(found: Found) -> None:
    found.refused("kernel", "terminal injection", ["EPERM"] * 4)


def test_there_is_no_terminal_of_somebody_else(found: Found) -> None:
    found.refused("kernel", "controlling terminal of somebody else", "ENXIO")


def test_ports_of_the_machine(found: Found) -> None:
    assert set(found.get("kernel", "iopl and ioperm")) <= {"EPERM", "ENOSYS"}


def test_priority(found: Found) -> None:
    found.refused("kernel", "raise one's own priority", "EACCES", "EPERM")


def test_it_dies_before_the_host_when_memory_ends(found: Found) -> None:
    found.refused("kernel", "lower one's own OOM score", "EACCES")


def test_the_32_bit_entry_is_filtered_too(found: Found) -> None:
    denied, absent = -1, -38
    expected = {
        "unshare": denied, "mount": denied, "keyctl": denied, "bpf": denied, "clone": denied,
        "socketcall": absent, "clone3": absent, "io_uring_setup": absent,
    }  # fmt: skip
    if platform.machine() != "x86_64":
        pytest.skip("missing ability: x86-64")
    found.refused("kernel", "32-bit entry", expected)


def test_the_x32_entry_is_filtered_too(found: Found) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("missing ability: x86-64")
    got = found.get("kernel", "x32 entry")
    assert set(got.values()) <= {"EPERM", "ENOSYS"}, got


def test_threads_are_as_filtered_as_their_process(found: Found) -> None:
    found.refused("kernel", "a thread's filter", ["1", "2", "EPERM"])


def test_the_filter_stays(found: Found) -> None:
    """A further filter may be put on; what is forbidden stays so."""
    found.refused("kernel", "take the filter off", ["EINVAL", "EINVAL", "allowed", "EPERM"])


def _numbers() -> dict[str, tuple[int, int]]:
    """The tables of the probes, read and not run."""
    tables: dict[str, tuple[int, int]] = {}
    for node in ast.parse(Path(FOLDER, "kernel.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("NUMBERS", "SHARED"):
            for name, value in ast.literal_eval(node.value).items():
                tables[name] = value if isinstance(value, tuple) else (value, value)
    return tables


def test_the_probes_call_what_they_say() -> None:
    """Some are never played outside: that their numbers are right shows that they try something."""
    machine = platform.machine()
    if machine not in ("x86_64", "aarch64"):
        pytest.skip("missing ability: x86-64 or 64-bit ARM")
    library = ctypes.CDLL(ctypes.util.find_library("seccomp") or "libseccomp.so.2")
    column = 0 if machine == "x86_64" else 1
    numbers = _numbers()
    assert len(numbers) > 40
    for name, columns in numbers.items():
        known = library.seccomp_syscall_resolve_name(name.encode())
        # Below zero: younger than the library.
        assert known < 0 or known == columns[column], name
