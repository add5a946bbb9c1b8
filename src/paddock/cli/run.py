"""`paddock run`: a throw-away sandbox around one command."""

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.command import command, new_app
from paddock.cli.options import (
    AutoDelete,
    Cpus,
    Disk,
    Env,
    IdleTimeout,
    Image,
    Interactive,
    Label,
    Memory,
    Metadata,
    Name,
    Processes,
    Runtime,
    Strict,
    Template,
    Tenant,
    Timeout,
    Ttl,
    Tty,
    User,
    Workdir,
)
from paddock.cli.values import creation

if TYPE_CHECKING:
    from paddock.cli.joined import ExecOptions

app = new_app()

# Should even the deletion at the end be cut short (kill -9), an idle sandbox with no command goes by itself.
LEFT_ALONE = {"idle_timeout": 60.0, "auto_delete": 0.0}
CommandLine = Annotated[
    list[str] | None,
    typer.Argument(metavar="[--] [COMMAND...]", help="bash when left out.", show_default=False),
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the sandbox, and say its id on stderr.")]


@command(app, "run", forward=True)
def run(
    words_: CommandLine = None,
    interactive: Interactive = False,
    tty: Tty = False,
    workdir: Workdir = None,
    user: User = None,
    timeout: Timeout = None,
    keep: Keep = False,
    name: Name = None,
    tenant: Tenant = None,
    template: Template = None,
    runtime: Runtime = None,
    image: Image = None,
    label: Label = None,
    env: Env = None,
    memory: Memory = None,
    cpus: Cpus = None,
    processes: Processes = None,
    disk: Disk = None,
    ttl: Ttl = None,
    idle_timeout: IdleTimeout = None,
    auto_delete: AutoDelete = None,
    strict: Strict = False,
    metadata: Metadata = None,
) -> None:
    """Run one command in a new sandbox, which is deleted when the command ends.

    On a terminal the command gets a terminal, as with -it. Exits with the command's exit code.
    """
    from paddock.cli.joined import ExecOptions

    request = creation(
        name=name,
        tenant=tenant,
        template=template,
        runtime=runtime,
        image=image,
        label=label,
        env=env,
        memory=memory,
        cpus=cpus,
        processes=processes,
        disk=disk,
        ttl=ttl,
        idle_timeout=idle_timeout,
        auto_delete=auto_delete,
        strict=strict,
        metadata=metadata,
    )
    if os.isatty(0) and os.isatty(1):
        interactive = tty = True
    options = ExecOptions(interactive, tty, None, workdir, user, timeout)
    raise typer.Exit(_around(request if keep else LEFT_ALONE | request, options, words_ or ["bash"], keep))


def _around(request: dict[str, Any], options: "ExecOptions", line: list[str], keep: bool) -> int:
    from paddock.cli.connect import client
    from paddock.cli.joined import join
    from paddock.cli.report import note
    from paddock.cli.signals import Signals
    from paddock.cli.stream import Target
    from paddock.errors import NotFound

    wanted = options.request(line)
    # The id is ours: even one whose making was interrupted can be taken away.
    sandbox = f"run-{os.urandom(6).hex()}"
    # While the sandbox is made and removed, signals are only noted: an interrupt would leave it behind.
    with client() as server, Signals([signal.SIGWINCH] if options.tty else []) as signals:
        try:
            server.create(request | {"id": sandbox})
            if signals.ended_by is not None:
                return 128 + signals.ended_by
            target = Target(sandbox, wanted["id"], wanted)
            return join(target, signals, interactive=options.interactive, tty=options.tty)
        finally:
            if keep:
                note(f"kept sandbox {sandbox}")
            else:
                with contextlib.suppress(NotFound):
                    server.delete(sandbox)
