from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.guest.driver import Guest, running


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    """A booted, adopted guest that is not PID 1: an ordinary process of this machine."""
    with running(tmp_path) as booted:
        yield booted
