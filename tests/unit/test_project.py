"""The tree itself: formatted, typed, layered, of readable size, and speaking of Paddock alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
MAX_LINES = 450


def run(*command: str) -> None:
    done = subprocess.run(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}"


def project_files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_ruff_finds_nothing() -> None:
    run(str(BIN / "ruff"), "check", "--no-cache", ".")


def test_code_is_formatted() -> None:
    run(str(BIN / "ruff"), "format", "--no-cache", "--check", ".")


@pytest.mark.timeout(600)
def test_types_are_sound() -> None:
    run(str(BIN / "mypy"))


def test_rooms_import_only_from_below() -> None:
    run(str(BIN / "lint-imports"), "--no-cache")


def test_files_stay_readable() -> None:
    sources = [path for path in project_files() if path.suffix in {".py", ".c", ".h"}]
    assert sources
    too_long = {
        str(path.relative_to(ROOT)): lines
        for path in sources
        if (lines := len(path.read_text().splitlines())) >= MAX_LINES
    }
    assert not too_long


def test_no_trace_of_where_it_was_built() -> None:
    # Assembled from parts, so that this file passes its own check.
    hosts = ["pypi" + ".org", "python" + "hosted.org", "npm" + "js.org", "npm" + "js.com"]
    pattern = re.compile("|".join([*map(re.escape, hosts), r"(?<![\w.])/" + r"(?:work|root)/"]))
    found = []
    for path in project_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {match.group()}" for match in pattern.finditer(text)]
    assert not found


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_locks_pin_by_hash_and_name_no_registry(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text
    requirements = re.split(r"\n(?=\S)", text.strip())
    assert len(requirements) > 20
    for requirement in requirements:
        assert re.match(r"[\w.\-\[\]]+==\S+", requirement), requirement
        assert "--hash=sha256:" in requirement, requirement
