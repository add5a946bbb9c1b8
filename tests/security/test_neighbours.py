"""Attacks on the guest and on the shepherd above a command. The same trick on a child of one's own works."""

from __future__ import annotations

import pytest

from tests.security.conftest import Found

pytestmark = pytest.mark.leaks_ok

REACHING_IN = (
    "ptrace attach", "ptrace seize", "process_vm_readv", "process_vm_writev", "pidfd_getfd",
    "list descriptors", "open a descriptor", "read memory", "write memory", "read the map",
    "read the environment", "read the auxiliary vector", "follow the root", "follow the folder",
    "read the program's link", "open its namespaces", "read its system call", "change its OOM score",
)  # fmt: skip


@pytest.mark.parametrize("name", REACHING_IN)
def test_guest_and_shepherd_are_closed(found: Found, name: str) -> None:
    got = found.get("neighbours", name)
    assert {got["guest"], got["shepherd"]} <= {"EPERM", "EACCES"}, got
    if got["own child"] != "allowed":
        pytest.skip(f"missing ability: {name!r} (refused even on a child: {got['own child']})")


def test_nobody_changes_the_limits_of_others(found: Found) -> None:
    """By the kernel's rule the same user may; it would leave the guest without a descriptor."""
    got = found.get("neighbours", "change its limits")
    assert (got["guest"], got["shepherd"]) == ("EPERM", "EPERM")


def test_no_signal_ends_the_guest(found: Found) -> None:
    sent = found.get("neighbours", "signal the guest")
    assert len(sent) > 60
    assert set(sent.values()) == {"allowed"}, "what is not even sent proves nothing"
    assert found.inside["after"] == {"guest": "still here\n"}
