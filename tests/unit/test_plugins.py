"""The plugins that watch over the other tests: `tests.abilities` and `tests.leaks`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CONFTEST = """
import pytest
from tests import abilities, leaks

pytest_plugins = ("tests.abilities", "tests.leaks")
leaks.GRACE_SECONDS = 0.2
abilities.PROBES["flying"] = lambda: False
abilities.PROBES["walking"] = lambda: True
"""


def outcomes(output: str) -> dict[str, int]:
    last = output.strip().splitlines()[-1]
    kinds = ("passed", "failed", "skipped", "error")
    return {kind: int(count) for count, kind in re.findall(r"(\d+) (\w+?)s?\b", last) if kind in kinds}


def run_tests(folder: Path, source: str) -> str:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text("import pytest, subprocess\n" + source)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    needs\n    leaks_ok\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-ra",
            "-p",
            "no:cacheprovider",
            f"--basetemp={folder / 'base'}",
            ".",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout


def test_a_missing_ability_is_named_and_counted(tmp_path: Path) -> None:
    output = run_tests(
        tmp_path,
        """
@pytest.mark.needs("flying")
def test_one(): raise AssertionError
@pytest.mark.needs("walking", "flying")
def test_two(): raise AssertionError
@pytest.mark.needs("walking")
def test_three(): pass
""",
    )
    assert outcomes(output) == {"passed": 1, "skipped": 2}
    assert "flying: 2 tests skipped" in output


def test_an_unknown_ability_is_an_error(tmp_path: Path) -> None:
    output = run_tests(tmp_path, "@pytest.mark.needs('swimming')\ndef test_one(): pass\n")
    assert "no such ability: 'swimming'" in output
    assert outcomes(output) == {"error": 1}


@pytest.mark.parametrize(
    "leak",
    [
        "subprocess.Popen(['sleep', '60'])",
        # Given to init, and recognised by the folder that its command line names.
        "subprocess.run(['sh', '-c', f'setsid tail -f {tmp_path}/../../conftest.py >/dev/null 2>&1 &'])",
    ],
)
def test_a_process_left_behind_fails_its_test_and_ends(tmp_path: Path, leak: str) -> None:
    output = run_tests(tmp_path, f"def test_one(tmp_path): {leak}\ndef test_two(): pass\n")
    assert "left behind by this test" in output
    assert outcomes(output) == {"passed": 2, "error": 1}


def test_what_is_cleaned_up_or_exempt_passes(tmp_path: Path) -> None:
    output = run_tests(
        tmp_path,
        """
children = []
def test_one():
    subprocess.run(["true"])
@pytest.mark.leaks_ok
def test_two():
    children.append(subprocess.Popen(["sleep", "60"]))
def test_three():
    children[0].kill()
    children[0].wait()
""",
    )
    assert outcomes(output) == {"passed": 3}


@pytest.mark.needs("root")
def test_a_mount_left_behind_fails_its_test(tmp_path: Path) -> None:
    target = tmp_path / "base" / "test_one0"
    try:
        mount = "subprocess.run(['mount', '-t', 'tmpfs', 'none', tmp_path], check=True)"
        output = run_tests(tmp_path, f"def test_one(tmp_path): {mount}\n")
        if "CalledProcessError" in output:
            pytest.skip("mounting is not allowed here")
        assert f"mount none {target}" in output
        assert outcomes(output) == {"passed": 1, "error": 1}
    finally:
        subprocess.run(["umount", target], stderr=subprocess.DEVNULL)
