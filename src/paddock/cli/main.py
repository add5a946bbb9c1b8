"""The `paddock` command: from the command line to an exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from paddock.cli.context import current
from paddock.cli.report import report
from paddock.errors import PaddockError

INTERRUPTED = 130
BROKEN_PIPE = 141


def run(arguments: Sequence[str]) -> int:
    """Carry out one command line and give back its exit code."""
    current.reset()
    try:
        code = _carry_out(arguments)
        _flush()
        return code
    except PaddockError as error:
        report(error)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return BROKEN_PIPE
    except OSError as error:
        report(PaddockError(_words(error), reason="system"))
        return 1


def _carry_out(arguments: Sequence[str]) -> int:
    from paddock.cli.quick import parse_exec

    plain_exec = parse_exec(arguments)
    if plain_exec is not None:
        from paddock.cli.joined import ExecOptions, execute

        current.apply(**plain_exec.globals)
        return execute(
            plain_exec.ref, plain_exec.line, ExecOptions(**plain_exec.options), detach=plain_exec.detach
        )
    from paddock.cli.app import invoke

    return invoke(arguments)


def _words(error: OSError) -> str:
    return ": ".join(str(part) for part in (error.filename, error.strerror or error) if part)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _open_standard_streams() -> None:
    """Called with one of them closed, the next file or socket would take its number and its place."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def main() -> None:
    _open_standard_streams()
    code = run(sys.argv[1:])
    try:
        _flush()
    except BrokenPipeError:
        code = BROKEN_PIPE
        # Python flushes once more at its end, and would complain.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(code)


if __name__ == "__main__":
    main()
