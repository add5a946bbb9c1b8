"""Options that several commands share."""

from typing import Annotated

import typer

Ref = Annotated[str, typer.Argument(metavar="ID", help="A sandbox's id or name.", show_default=False)]
ExecId = Annotated[str, typer.Argument(metavar="EXEC", help="An exec's id.", show_default=False)]
FilePath = Annotated[
    str, typer.Argument(metavar="PATH", help="In the sandbox; a relative one starts at its workspace.")
]

Name = Annotated[str | None, typer.Option("--name", help="A name to call it by.")]
Tenant = Annotated[str | None, typer.Option(help="Whose storage /workspace and outputs are on.")]
Template = Annotated[str | None, typer.Option(help="The template to start from.")]
Runtime = Annotated[str | None, typer.Option(help="What makes the sandbox, e.g. bubblewrap.")]
Image = Annotated[str | None, typer.Option(help="The image, for runtimes that use one.")]
Label = Annotated[
    list[str] | None, typer.Option("--label", "-l", metavar="K=V", help="A label; may be repeated.")
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env", "-e", metavar="K=V", help="A variable; K alone takes its value from here. Repeatable."
    ),
]
Memory = Annotated[str | None, typer.Option(metavar="SIZE", help="Memory limit, e.g. 512MiB.")]
Cpus = Annotated[float | None, typer.Option(help="CPU limit, e.g. 1.5.")]
Processes = Annotated[int | None, typer.Option(help="Limit on the number of processes.")]
Disk = Annotated[str | None, typer.Option(metavar="SIZE", help="Disk limit, e.g. 2GiB.")]
Ttl = Annotated[str | None, typer.Option("--ttl", metavar="TIME", help="Its longest life, e.g. 1h.")]
IdleTimeout = Annotated[
    str | None,
    typer.Option("--idle-timeout", metavar="TIME", help="Stop it after this long without work, e.g. 15m."),
]
AutoDelete = Annotated[
    str | None,
    typer.Option("--auto-delete", metavar="TIME", help="Delete it this long after its end, e.g. 0s."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse if this host cannot enforce every limit.")]
Metadata = Annotated[
    str | None, typer.Option(metavar="JSON", help="Anything of yours to keep with it: an object.")
]

Interactive = Annotated[bool, typer.Option("--interactive", "-i", help="Pass stdin on.")]
Tty = Annotated[bool, typer.Option("--tty", "-t", help="Give the command a terminal.")]
Workdir = Annotated[str | None, typer.Option("--workdir", "-w", metavar="DIR", help="Where to run it.")]
User = Annotated[str | None, typer.Option("--user", "-u", help="As whom to run it.")]
Timeout = Annotated[
    str | None,
    typer.Option("--timeout", metavar="TIME", help="Kill it after this long, e.g. 10s (exit code 5)."),
]
