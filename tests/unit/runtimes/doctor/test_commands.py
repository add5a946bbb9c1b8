from __future__ import annotations

from paddock.runtimes.doctor.commands import find_program, run


async def test_output_and_status() -> None:
    done = await run("/bin/sh", "-c", "echo one; echo two; echo first >&2; echo bad >&2; exit 3")
    assert (done.code, done.first_line, done.complaint) == (3, "one", "bad")


async def test_a_silent_failure_has_its_status() -> None:
    assert (await run("/bin/false")).complaint == "it ended with status 1"


async def test_what_does_not_end_is_ended() -> None:
    done = await run("/bin/sleep", "1000", seconds=0.1)
    assert done.code is None
    assert "in time" in done.complaint


def test_programs_of_administrators_are_found() -> None:
    assert find_program("sh")
    assert find_program("no-such-program-anywhere") is None
