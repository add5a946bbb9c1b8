"""`paddock exec`."""

from typing import Annotated

import typer

from paddock.cli.command import command, new_app
from paddock.cli.options import Env, Interactive, Ref, Timeout, Tty, User, Workdir

app = new_app()

CommandLine = Annotated[list[str], typer.Argument(metavar="[--] COMMAND...", show_default=False)]
Detach = Annotated[
    bool, typer.Option("--detach", "-d", help="Start it, print the exec's id, and let it run on.")
]
ExecIdOption = Annotated[
    str | None, typer.Option("--id", help="The exec's id; asking twice with one id starts one process.")
]


@command(app, "exec", forward=True)
def exec_(
    ref: Ref,
    words_: CommandLine,
    interactive: Interactive = False,
    tty: Tty = False,
    detach: Detach = False,
    env: Env = None,
    workdir: Workdir = None,
    user: User = None,
    timeout: Timeout = None,
    exec_id: ExecIdOption = None,
) -> None:
    """Run a command in a sandbox and exit with its exit code.

    Ctrl-C interrupts the command; twice cancels it. Options come before the id.
    """
    from paddock.cli.joined import ExecOptions, execute

    options = ExecOptions(interactive, tty, env, workdir, user, timeout, exec_id)
    raise typer.Exit(execute(ref, words_, options, detach=detach))
