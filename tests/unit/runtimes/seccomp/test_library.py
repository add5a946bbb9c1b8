from __future__ import annotations

import errno
import struct

import pytest

from paddock import errors
from paddock.runtimes.seccomp.library import compile_program
from paddock.runtimes.seccomp.profile import ALLOW, ERRNO, Compare, Program, Rule

RET_ERRNO = 0x0005_0000


def returns(program: bytes) -> set[int]:
    """The values that the filter's return instructions give."""
    instructions = struct.iter_unpack("=HBBI", program)
    return {value for code, _, _, value in instructions if code == 0x06}


def test_a_program_is_compiled_to_whole_instructions() -> None:
    rules = (
        Rule("mount", ERRNO, errno.EPERM),
        Rule("ioctl", ERRNO, errno.ENOTTY, (Compare(1, "SCMP_CMP_EQ", 5),)),
    )
    compiled = compile_program(Program(ALLOW, 0, (), rules))
    assert len(compiled) % 8 == 0
    assert {RET_ERRNO | errno.EPERM, RET_ERRNO | errno.ENOTTY, 0x7FFF_0000} <= returns(compiled)


def test_an_unknown_call_that_must_be_refused_stops_the_build() -> None:
    with pytest.raises(errors.Unavailable) as caught:
        compile_program(Program(ALLOW, 0, (), (Rule("no_such_call", ERRNO),)))
    assert caught.value.reason == "seccomp_compile_failed"


def test_an_unknown_call_that_would_be_allowed_stays_refused() -> None:
    rules = (Rule("no_such_call", ALLOW), Rule("read", ALLOW))
    assert RET_ERRNO | errno.ENOSYS in returns(compile_program(Program(ERRNO, errno.ENOSYS, (), rules)))


def test_an_unknown_action_stops_the_build() -> None:
    with pytest.raises(errors.Unavailable, match="SCMP_ACT_PRAY"):
        compile_program(Program(ERRNO, 1, (), (Rule("read", "SCMP_ACT_PRAY"),)))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise OSError("libseccomp.so.2: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", missing)
    with pytest.raises(errors.Unavailable) as caught:
        compile_program(Program(ALLOW, 0, (), ()))
    assert caught.value.reason == "libseccomp_missing"
