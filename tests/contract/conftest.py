"""Every scenario of this folder runs over every runtime."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from paddock.guest.build import guest_binary, launch_binary
from tests.contract.stage import LocalStage, Stage, UserStage

VARIANTS = [
    pytest.param("bubblewrap", marks=pytest.mark.needs("root", "bwrap")),
    pytest.param("bubblewrap-user", marks=pytest.mark.needs("ordinary-user", "bwrap")),
    pytest.param("fake", marks=pytest.mark.needs("cc")),
]


@pytest.fixture(scope="session", params=VARIANTS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    # Here and now: the ordinary user could not write them.
    guest_binary()
    launch_binary()
    if request.param == "bubblewrap-user":
        chosen: Stage = UserStage(request.param)
    else:
        local = LocalStage(request.param)
        local.prepare()
        chosen = local
    with contextlib.closing(chosen):
        yield chosen
