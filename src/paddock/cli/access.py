"""`paddock token ...`: who may call the server."""

from typing import Annotated

import typer

from paddock.cli.command import command, new_app
from paddock.cli.connect import client
from paddock.cli.context import current
from paddock.cli.output import emit_json, moment, table
from paddock.cli.report import note, plain
from paddock.cli.values import duration, given

app = new_app("Make, list and revoke API tokens.", no_args_is_help=True)


@command(app, "create")
def create(
    name: Annotated[str, typer.Argument(help="Whose it is, or what for.", show_default=False)],
    role: Annotated[str, typer.Option(help="observer, operator or admin.")] = "operator",
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="How long it is good for, e.g. 30d.")
    ] = None,
) -> None:
    """Make a token and print its secret, which is shown only now."""
    with client() as server:
        made = server.create_token(given(name=name, role=role, expires_in=duration(expires)))
    if current.json:
        emit_json(made)
        return
    note(f"token {made['id']} ({made['role']}); keep the secret, it is not shown again")
    print(made["secret"])


@command(app, "list")
def list_() -> None:
    """List the tokens."""
    with client() as server:
        found = server.tokens()
    if current.json:
        emit_json(found)
        return
    rows = [
        (
            token["id"],
            token["name"],
            token["role"],
            moment(token["created_at"]),
            moment(token["last_used_at"]),
            "revoked" if token["revoked_at"] else moment(token["expires_at"]),
        )
        for token in found
    ]
    table(("id", "name", "role", "created", "last used", "expires"), rows)


@command(app, "revoke")
def revoke(token_id: Annotated[str, typer.Argument(metavar="ID", show_default=False)]) -> None:
    """Revoke a token by its id or name: it is refused from now on."""
    with client() as server:
        revoked = server.revoke_token(token_id)
    emit_json(revoked) if current.json else print(plain(revoked["id"]))
