"""The system calls that a sandbox may make: the distribution's default container profile, and less."""

from __future__ import annotations

import functools

from paddock.runtimes.seccomp.denied import denied_program
from paddock.runtimes.seccomp.library import compile_program
from paddock.runtimes.seccomp.profile import PROFILES, find_profile, read_program

__all__ = ["PROFILES", "compiled_filters", "find_profile"]


@functools.cache
def compiled_filters() -> tuple[bytes, ...]:
    """The filters for this host, to be stacked. Unavailable where they cannot be had."""
    profile = read_program(find_profile())
    return compile_program(profile), compile_program(denied_program(profile.architectures))
