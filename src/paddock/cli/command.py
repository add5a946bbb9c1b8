"""The shape of every command: the same global options at its end, and loaded only when it is called."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from paddock.cli.context import current

Function = TypeVar("Function", bound=Callable[..., None])

Json = Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")]
Url = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="The server's address [env: PADDOCK_URL].")
]
Token = Annotated[
    str | None, typer.Option("--token", metavar="TOKEN", help="An API token [env: PADDOCK_TOKEN].")
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="The local server's data folder [env: PADDOCK_DATA_DIR]."),
]

MODULES = {
    "up": "server",
    "down": "server",
    "status": "server",
    "sandbox": "sandbox",
    "exec": "exec",
    "run": "run",
    "cp": "copy",
    "logs": "execs",
    "execs": "execs",
    "attach": "execs",
    "kill": "execs",
    "wait": "execs",
    "files": "files",
    "events": "events",
    "token": "access",
    "audit": "audit",
    "doctor": "doctor",
    "completion": "about",
    "version": "about",
}
"""Where each command lives, in the order of the help."""
GROUPS = frozenset({"sandbox", "files", "token"})


def new_app(help: str | None = None, **settings: Any) -> typer.Typer:
    if help is not None:
        settings["help"] = help
    return typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **settings
    )


def command(app: typer.Typer, name: str, **settings: Any) -> Callable[[Function], Function]:
    """Register a command. `forward=True`: what follows its first argument belongs to it, options too."""
    context = {"help_option_names": ["-h", "--help"]}
    if settings.pop("forward", False):
        context["allow_interspersed_args"] = False  # type: ignore[assignment]
    return app.command(name, cls=Command, context_settings=context, **settings)


def _take_globals(json: Json = False, url: Url = None, token: Token = None, data_dir: DataDir = None) -> None:
    current.apply(json=json, url=url, token=token, data_dir=data_dir)


def _global_params() -> list[Any]:
    template = new_app()
    template.command()(_take_globals)
    return list(typer.main.get_command(template).params)


class Command(TyperCommand):
    """A command that takes the global options besides its own."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        own = settings.pop("params", None) or []
        taken = {option for param in own for option in param.opts}
        added = [param for param in _global_params() if not taken.intersection(param.opts)]
        self._added = [param.name for param in added]
        super().__init__(name, params=[*own, *added], **settings)

    def invoke(self, ctx: Any) -> Any:
        given = {"json": False, "url": None, "token": None, "data_dir": None}
        given |= {name: ctx.params.pop(name) for name in self._added}
        _take_globals(**given)  # type: ignore[arg-type]
        return super().invoke(ctx)


class Root(TyperGroup):
    """Loads the module of a command when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in MODULES:
            return None
        app: typer.Typer = importlib.import_module(f"paddock.cli.{MODULES[cmd_name]}").app
        group = typer.main.get_group(app)
        if cmd_name in GROUPS:
            group.name = cmd_name
            return group
        return group.commands[cmd_name]
