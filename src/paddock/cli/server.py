"""`paddock up`, `down` and `status`: the local server."""

from pathlib import Path
from typing import Annotated, Any

import typer

from paddock.cli.command import command, new_app
from paddock.cli.connect import address, data_dir, find_local, read_server_json
from paddock.cli.context import current
from paddock.cli.output import details, emit_json
from paddock.cli.report import note
from paddock.cli.values import given

app = new_app()

NOT_RUNNING = 3


@command(app, "up")
def up(
    host: Annotated[str | None, typer.Option(help="The address to listen on [default: 127.0.0.1].")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port; 0 for any free one [default: 8122].")
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Ask nobody for a token. On a loopback address only.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A TOML file of settings [env: PADDOCK_CONFIG].")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    runtime: Annotated[str | None, typer.Option(help="The runtime of sandboxes that ask for none.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse sandboxes whose limits this host cannot enforce.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Come back when it answers; it runs on.")
    ] = False,
) -> None:
    """Start the server. Sandboxes of an earlier one are found again."""
    import os

    if config is not None:
        os.environ["PADDOCK_CONFIG"] = str(config.expanduser().absolute())
    flags = given(
        host=host,
        port=port,
        data_dir=str(current.data_dir) if current.data_dir else None,
        no_auth=no_auth or None,
        log_level=log_level,
        default_runtime=runtime,
        strict=strict or None,
    )
    _start_detached(flags) if detach else _serve(flags)


def _serve(flags: dict[str, Any]) -> None:
    from paddock.config import load
    from paddock.server.run import serve

    serve(load(flags))


def _start_detached(flags: dict[str, Any]) -> None:
    from paddock.cli.launch import start_detached
    from paddock.config import load

    # What is wrong with the settings is better told here than by the log of a server that did not start.
    folder = load(flags).data_dir
    server = find_local(folder)
    if server is None:
        server = start_detached(folder, _as_arguments(flags))
        note(f"started a server on {server.url}")
    else:
        note(f"a server already runs on {server.url}")
    emit_json({"url": server.url, "pid": server.pid}) if current.json else print(server.url)


def _as_arguments(flags: dict[str, Any]) -> list[str]:
    names = {"default_runtime": "runtime"}
    arguments = []
    for name, value in flags.items():
        if name == "data_dir":
            continue
        option = f"--{names.get(name, name).replace('_', '-')}"
        arguments += [option] if value is True else [option, str(value)]
    return arguments


@command(app, "down")
def down() -> None:
    """Stop the local server. Its sandboxes live on, and the next server finds them."""
    from paddock.cli.connect import is_alive
    from paddock.cli.launch import stop

    server = read_server_json(data_dir())
    running = server is not None and is_alive(server.pid)
    if server is not None and running:
        stop(server)
    if current.json:
        emit_json({"stopped": running, "pid": server.pid if server and running else None})
    else:
        note("the server has stopped; its sandboxes live on" if running else "no server is running")


@command(app, "status")
def status() -> None:
    """Say whether a server runs, and what it holds. Exit code 3 when none does."""
    from paddock.client import Client

    local = current.server_url is None
    if local and find_local(data_dir()) is None:
        if current.json:
            emit_json({"running": False, "data_dir": str(data_dir())})
        else:
            note(f"no server is running on {data_dir()}")
        raise typer.Exit(NOT_RUNNING)
    with Client(address(start=False)) as server:
        # A local server's folder tells it at once; /info tries out the runtimes, which takes its time.
        told = read_server_json(data_dir()) if local else None
        version = told.version if told else server.info()["version"]
        states: dict[str, int] = {}
        for sandbox in server.sandboxes():
            states[sandbox["state"]] = states.get(sandbox["state"], 0) + 1
    found = {
        "running": True,
        "url": server.address.url,
        "pid": told.pid if told else None,
        "data_dir": str(data_dir()) if local else None,
        "version": version,
        "sandboxes": states,
    }
    if current.json:
        emit_json(found)
        return
    counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
    details({name.replace("_", " "): value for name, value in found.items()} | {"sandboxes": counted})
