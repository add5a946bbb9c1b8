from __future__ import annotations

import pytest

from paddock.runtimes.doctor import kvm
from paddock.runtimes.doctor.kvm import probe_kvm


async def test_a_machine_without_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvm, "_DEVICE", "/nonexistent/kvm")
    ability = await probe_kvm()
    assert not ability.works
    assert ability.fix


async def test_the_answer_is_definite_either_way() -> None:
    ability = await probe_kvm()
    assert ability.name == "kvm"
    assert ability.detail
    assert ability.works or ability.fix


def test_a_device_that_is_something_else_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvm, "_DEVICE", "/dev/null")
    with pytest.raises(OSError):
        kvm.run_machine()
