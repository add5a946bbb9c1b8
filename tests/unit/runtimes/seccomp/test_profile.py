from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from paddock import errors
from paddock.runtimes.seccomp.profile import ALLOW, ERRNO, Compare, evaluate, find_profile, read_program


def profile(*syscalls: dict[str, Any]) -> dict[str, Any]:
    return {
        "defaultAction": ERRNO,
        "defaultErrnoRet": errno.ENOSYS,
        "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]}],
        "syscalls": list(syscalls),
    }


def names(*syscalls: dict[str, Any], machine: str = "x86_64", kernel: str = "6.1.0-9-amd64") -> list[str]:
    return [rule.name for rule in evaluate(profile(*syscalls), machine, kernel).rules]


def allow(name: str, **conditions: Any) -> dict[str, Any]:
    return {"names": [name], "action": ALLOW, **conditions}


def test_what_a_capability_would_allow_is_not_allowed() -> None:
    assert names(allow("read"), allow("mount", includes={"caps": ["CAP_SYS_ADMIN"]})) == ["read"]


def test_what_a_missing_capability_forbids_applies() -> None:
    entry = {"names": ["clone3"], "action": ERRNO, "errnoRet": 38, "excludes": {"caps": ["CAP_SYS_ADMIN"]}}
    (rule,) = evaluate(profile(entry), "x86_64", "6.1").rules
    assert (rule.name, rule.action, rule.errno) == ("clone3", ERRNO, 38)


def test_rules_for_other_machines_and_kernels_are_left_out() -> None:
    entries = (
        allow("here", includes={"arches": ["amd64"]}),
        allow("there", includes={"arches": ["s390x"]}),
        allow("not-here", excludes={"arches": ["amd64"]}),
        allow("old-enough", includes={"minKernel": "4.8"}),
        allow("too-new", includes={"minKernel": "7.0"}),
    )
    assert names(*entries) == ["here", "old-enough"]


def test_arguments_and_numbers_are_taken_over() -> None:
    entry = allow("clone", args=[{"index": 0, "value": 7, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}])
    program = evaluate(profile(entry), "x86_64", "6.1")
    assert program.rules[0].args == (Compare(0, "SCMP_CMP_MASKED_EQ", 7, 0),)
    assert program.default_errno == errno.ENOSYS
    assert program.architectures == ("SCMP_ARCH_X86",)


def test_a_missing_profile_is_an_error_and_not_an_empty_filter(tmp_path: Path) -> None:
    with pytest.raises(errors.Unavailable) as caught:
        find_profile((tmp_path / "none.json",))
    assert caught.value.reason == "seccomp_profile_missing"
    assert caught.value.hint


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", json.dumps({"defaultAction": ERRNO, "syscalls": [{"x": 1}]})]
)
def test_a_broken_profile_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "seccomp.json"
    path.write_text(text)
    with pytest.raises(errors.Unavailable) as caught:
        read_program(path)
    assert caught.value.reason == "seccomp_profile_invalid"


def test_an_unknown_machine_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "seccomp.json"
    path.write_text(json.dumps(profile(allow("read"))))
    with pytest.raises(errors.Unavailable, match="pdp11"):
        read_program(path, machine="pdp11")
