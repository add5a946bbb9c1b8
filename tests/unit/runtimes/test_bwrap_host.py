from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddock import errors
from paddock.runtimes import bwrap_host
from paddock.runtimes.bwrap_host import check_passable, find_bwrap, prepare_host, read_features
from tests.unit.runtimes.stub import stub_guest


def fake_bwrap(folder: Path, help_text: str) -> str:
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{help_text}\nEND\n")
    program.chmod(0o755)
    return str(program)


def test_an_old_bwrap_is_refused_by_name_of_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(errors.Unavailable, match="--add-seccomp-fd") as caught:
        read_features(fake_bwrap(tmp_path, "    --info-fd FD   Write\n    --as-pid-1  Do not"))
    assert caught.value.reason == "bwrap_too_old"
    assert caught.value.hint


def test_switching_nested_namespaces_off_is_optional(tmp_path: Path) -> None:
    needed = "\n".join(f"    {option} X" for option in bwrap_host._NEEDED)
    assert not read_features(fake_bwrap(tmp_path, needed)).disable_userns
    assert read_features(fake_bwrap(tmp_path, f"{needed}\n    --disable-userns")).disable_userns


def test_a_missing_bwrap_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap_host, "_SYSTEM_PATH", "/nonexistent")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(errors.Unavailable) as caught:
        find_bwrap()
    assert caught.value.reason == "bwrap_missing"


def test_a_folder_that_others_cannot_reach_is_refused(data_dir: Path) -> None:
    (data_dir / "closed" / "inner").mkdir(parents=True)
    check_passable(data_dir)
    (data_dir / "closed").chmod(0o700)
    with pytest.raises(errors.Unavailable, match="closed") as caught:
        check_passable(data_dir / "closed" / "inner")
    assert caught.value.reason == "data_dir_not_passable"


@pytest.mark.needs("bwrap", "cc")
def test_without_a_filter_nothing_is_prepared(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> tuple[bytes, ...]:
        raise errors.Unavailable("no profile", reason="seccomp_profile_missing")

    monkeypatch.setattr(bwrap_host, "compiled_filters", missing)
    with pytest.raises(errors.Unavailable, match="no profile"):
        prepare_host(data_dir)


@pytest.mark.needs("bwrap", "cc")
def test_what_sandboxes_share_is_in_the_data_folder(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap_host, "guest_binary", stub_guest)
    host = prepare_host(data_dir)
    assert host.guest.is_relative_to(data_dir / "system")
    assert os.access(host.guest, os.X_OK)
    assert len(host.filters) == 2
    assert all(path.stat().st_size for path in host.filters)
    assert prepare_host(data_dir) == host
