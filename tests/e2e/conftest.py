from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.command import Paddock


@pytest.fixture(scope="module")
def paddock() -> Iterator[Paddock]:
    """The command with a server of its own, which the first call starts."""
    made = Paddock()
    yield made
    made.close()


@pytest.fixture
def box(paddock: Paddock) -> Iterator[str]:
    """A sandbox."""
    made = paddock.text("sandbox", "create").strip()
    yield made
    paddock.run("sandbox", "delete", made)


@pytest.fixture
def alone() -> Iterator[Paddock]:
    """As `paddock`, for a test that stops or kills the server."""
    made = Paddock()
    yield made
    made.close()
