from __future__ import annotations

from pathlib import Path

import pytest

from paddock import errors
from paddock.runtimes.doctor import isolation
from paddock.runtimes.doctor.isolation import namespace_fix, probe_bwrap, probe_namespaces, probe_seccomp


def switch(folder: Path, name: str, value: str) -> Path:
    path = folder / name
    path.write_text(f"{value}\n")
    return path


def test_the_distributions_switch_is_named(tmp_path: Path) -> None:
    none = tmp_path / "none"
    on, off = switch(tmp_path, "on", "1"), switch(tmp_path, "off", "0")
    assert "apparmor_restrict_unprivileged_userns" in namespace_fix(on, none, none)
    assert "unprivileged_userns_clone" in namespace_fix(off, off, none)
    assert "max_user_namespaces" in namespace_fix(none, on, off)
    assert "container" in namespace_fix(none, none, on)


async def test_a_missing_bwrap_has_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise errors.Unavailable("bwrap is not installed", hint="install it")

    monkeypatch.setattr(isolation, "find_bwrap", missing)
    for ability in (await probe_bwrap(), await probe_namespaces()):
        assert not ability.works
        assert ability.fix == "install it"


async def test_namespaces_that_fail_carry_bwraps_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "find_bwrap", lambda: "/bin/false")
    ability = await probe_namespaces()
    assert not ability.works
    assert ability.detail
    assert ability.fix


async def test_a_missing_profile_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> tuple[bytes, ...]:
        raise errors.Unavailable("no profile", hint="install it")

    monkeypatch.setattr(isolation, "compiled_filters", missing)
    ability = await probe_seccomp()
    assert (ability.works, ability.detail, ability.fix) == (False, "no profile", "install it")
