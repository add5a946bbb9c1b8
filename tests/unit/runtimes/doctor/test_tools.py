from __future__ import annotations

from pathlib import Path

import pytest

from paddock.runtimes.doctor import tools
from paddock.runtimes.doctor.tools import probe_clock, probe_compiler, probe_program, probe_room


async def test_a_program_is_run_and_not_only_found(tmp_path: Path) -> None:
    works, broken = tmp_path / "works", tmp_path / "broken"
    works.write_text("#!/bin/sh\necho works 1.2\n")
    broken.write_text("#!/bin/sh\necho cannot >&2; exit 1\n")
    for program in (works, broken):
        program.chmod(0o755)
    assert (await probe_program("it", (str(works),), "fix")).detail.startswith("works 1.2")
    ability = await probe_program("it", (str(broken),), "fix")
    assert not ability.works
    assert "cannot" in ability.detail
    assert (await probe_program("it", ("no-such-program",), "fix")).detail == "not installed"


@pytest.mark.needs("cc")
async def test_the_compiler_builds_a_static_program() -> None:
    assert (await probe_compiler()).works


async def test_a_missing_compiler_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find_program", lambda name: None)
    ability = await probe_compiler()
    assert not ability.works
    assert ability.fix


def test_room_is_measured_where_the_data_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(tmp_path) in probe_room(tmp_path).detail
    monkeypatch.setattr(tools, "_ROOM", 1 << 80)
    ability = probe_room(tmp_path)
    assert not ability.works
    assert ability.fix


def test_a_clock_that_was_never_set_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe_clock().works
    monkeypatch.setattr("time.time", lambda: 1000.0)
    assert not probe_clock().works
