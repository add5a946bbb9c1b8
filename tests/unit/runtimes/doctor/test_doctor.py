from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddock.runtimes.base import Ability
from paddock.runtimes.bubblewrap import BubblewrapRuntime
from paddock.runtimes.doctor import diagnose, diagnose_bubblewrap


def by_name(abilities: list[Ability]) -> dict[str, Ability]:
    found = {ability.name: ability for ability in abilities}
    assert len(found) == len(abilities), "each name once"
    return found


@pytest.mark.needs("root", "bwrap", "cc")
async def test_a_host_that_can_is_told_so_and_nothing_stays(data_dir: Path) -> None:
    abilities = await diagnose_bubblewrap(data_dir)
    assert abilities[0].name == BubblewrapRuntime.name
    found = by_name(abilities)
    for name in ("bubblewrap", "bwrap", "namespaces", "seccomp"):
        assert found[name].works, found[name]
    assert os.listdir(data_dir) == []


@pytest.mark.needs("root", "cgroup-memory", "cgroup-pids", "cgroup-cpu", "cgroup-freezer")
async def test_limits_are_proved_by_setting_them(data_dir: Path) -> None:
    found = by_name(await diagnose_bubblewrap(data_dir))
    for name in ("limit-memory", "limit-cpus", "limit-processes", "pause"):
        assert found[name].works, found[name]


async def test_everything_is_asked_and_what_fails_has_a_fix(data_dir: Path) -> None:
    found = by_name(await diagnose(data_dir))
    expected = {
        *("bubblewrap", "bwrap", "namespaces", "seccomp", "limit-memory", "limit-cpus", "limit-processes"),
        *("pause", "limit-disk-exact", "kvm", "podman", "docker", "runc", "crun", "runsc", "qemu"),
        *("compiler", "disk-room", "clock", "python"),
    }
    assert set(found) == expected
    for ability in found.values():
        assert ability.works or (ability.detail and ability.fix), ability


async def test_a_data_folder_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = by_name(await diagnose(tmp_path / "file" / "below"))
    assert not found["bubblewrap"].works
    assert not found["disk-room"].works
    assert found["bubblewrap"].fix
