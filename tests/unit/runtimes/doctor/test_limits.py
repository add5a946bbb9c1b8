from __future__ import annotations

import pytest

from paddock.runtimes.doctor import limits
from paddock.runtimes.doctor.limits import probe_limits


async def test_a_host_without_cgroups_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "find_cgroups", lambda key: None)
    abilities = await probe_limits()
    assert [ability.name for ability in abilities] == [
        "limit-memory",
        "limit-cpus",
        "limit-processes",
        "pause",
    ]
    assert not any(ability.works for ability in abilities)
    assert all(ability.fix for ability in abilities)
