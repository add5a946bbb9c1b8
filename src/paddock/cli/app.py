"""The whole command line as Typer has it. Loading it takes longer than most commands run."""

from collections.abc import Sequence

import typer

from paddock.cli.command import DataDir, Json, Root, Token, Url, new_app
from paddock.cli.context import current
from paddock.errors import Invalid

INTERRUPTED = 130

app = new_app(cls=Root, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})
# Typer's own --install-completion and --show-completion.
app._add_completion = True


@app.callback()
def paddock(json: Json = False, url: Url = None, token: Token = None, data_dir: DataDir = None) -> None:
    """A computer for AI agents: isolated Linux sandboxes in milliseconds.

    A server is started when none runs. Exit codes: 2 usage, 3 not found, 4 denied, 5 timeout, 1 other;
    `exec` and `run` exit with the command's own.
    """
    current.apply(json=json, url=url, token=token, data_dir=data_dir)


def invoke(arguments: Sequence[str]) -> int:
    """Carry out one command line. A mistake in it is errors.Invalid."""
    line = list(arguments) or ["--help"]
    try:
        result = typer.main.get_command(app).main(line, prog_name="paddock", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        return INTERRUPTED
    except Exception as error:
        usage = _usage_error(error)
        if usage is None:
            raise
        current.json = current.json or _json_wanted(arguments)
        raise usage from None


def _usage_error(error: Exception) -> Invalid | None:
    """Typer's complaints about the command line, which it does not print itself in this mode."""
    describe = getattr(error, "format_message", None)
    if describe is None:
        return None
    message = str(describe()).rstrip(".")
    ctx = getattr(error, "ctx", None)
    if ctx is not None and message.startswith("Usage:"):
        # Called without anything, a group complains with its whole help: the list of commands says enough.
        names = ", ".join(ctx.command.list_commands(ctx))
        message = f"{ctx.command_path} needs a command: {names}"
    hint = None if ctx is None else f"see: {ctx.command_path} --help"
    return Invalid(message, reason="usage", hint=hint)


def _json_wanted(arguments: Sequence[str]) -> bool:
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own
