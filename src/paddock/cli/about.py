"""`paddock version` and `paddock completion`."""

from typing import Annotated

import typer

from paddock import __version__
from paddock.cli.command import command, new_app
from paddock.cli.context import current
from paddock.cli.output import emit_json
from paddock.errors import Invalid

app = new_app()

SHELLS = ("bash", "zsh", "fish")


@command(app, "version")
def version() -> None:
    """Print the version."""
    emit_json({"version": __version__}) if current.json else print(f"paddock {__version__}")


@command(app, "completion")
def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish.", show_default=False)],
) -> None:
    """Print the script that completes paddock's commands in a shell.

    `paddock --install-completion` puts it in place by itself.
    """
    from typer._completion_shared import get_completion_script

    if shell not in SHELLS:
        raise Invalid(f"no completion for {shell!r}", reason="usage", hint=f"one of: {', '.join(SHELLS)}")
    script = get_completion_script(prog_name="paddock", complete_var="_PADDOCK_COMPLETE", shell=shell)
    emit_json({"shell": shell, "script": script}) if current.json else print(script)
