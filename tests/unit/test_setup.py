"""`scripts/setup`, on a bare tree and with an installer that installs nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "setup", tree / "scripts" / "setup")
    write_program(tree / "scripts" / "system-packages", "exit 0")
    (tree / "pyproject.toml").write_text("")
    write_program(tmp_path / "bin" / "uv", f'echo "$*" >>{tmp_path}/installed; exit "${{UV_STATUS:-0}}"')
    return tree


def write_program(path: Path, script: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def run_setup(tree: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tree / "scripts" / "setup"],
        env={
            **os.environ,
            "PYTHON": getattr(sys, "_base_executable", sys.executable),
            "PATH": f"{tree.parent / 'bin'}:{os.environ['PATH']}",
            "PIP_NO_INDEX": "1",
            **environment,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.timeout(400)
def test_an_environment_that_works_is_kept_and_a_copied_one_is_not(tree: Path) -> None:
    assert run_setup(tree).returncode == 0
    mark = tree / ".venv" / "mark"
    mark.touch()
    installed = tree.parent / "installed"
    before = installed.read_text()
    assert "--require-hashes" in before

    assert run_setup(tree).returncode == 0
    assert installed.read_text() == before

    (tree / "pyproject.toml").write_text("# changed")
    assert run_setup(tree).returncode == 0
    assert installed.read_text() != before
    assert mark.exists()

    copy = tree.parent / "copy"
    shutil.copytree(tree, copy, symlinks=True)
    assert run_setup(copy).returncode == 0
    assert not (copy / ".venv" / "mark").exists()
    assert mark.exists()


@pytest.mark.timeout(400)
def test_a_failed_install_is_tried_again_next_time(tree: Path) -> None:
    # pip is asked after uv has failed, and there is no lock for it to read.
    failed = run_setup(tree, UV_STATUS="1")
    assert failed.returncode != 0
    assert "requirements-dev.lock" in failed.stdout
    assert run_setup(tree).returncode == 0
