"""`paddock sandbox ...`: making sandboxes, looking at them, ending them."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.command import command, new_app
from paddock.cli.connect import client
from paddock.cli.context import current
from paddock.cli.options import (
    AutoDelete,
    Cpus,
    Disk,
    Env,
    IdleTimeout,
    Image,
    Label,
    Memory,
    Metadata,
    Name,
    Processes,
    Ref,
    Runtime,
    Strict,
    Template,
    Tenant,
    Ttl,
)
from paddock.cli.output import details, emit_json, moment, size, span, table
from paddock.cli.report import plain, report
from paddock.cli.values import (
    creation,
    duration,
    given,
    json_object,
    limit,
    pairs,
)
from paddock.errors import Invalid, PaddockError

if TYPE_CHECKING:
    from paddock.client import Client
    from paddock.client.shapes import Sandbox

app = new_app("Make sandboxes, look at them, end them.", no_args_is_help=True)

Refs = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids or names.", show_default=False)]
SomeRefs = Annotated[
    list[str] | None, typer.Argument(metavar="[ID...]", help="Ids or names.", show_default=False)
]
LIVE = ("creating", "running", "paused", "stopping")


@command(app, "create")
def create(
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
    """Make a sandbox and print its id."""
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
    with client() as server:
        made = server.create(request)
    emit_json(made) if current.json else print(made["id"])


@command(app, "list")
def list_(
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only in this state; may be repeated.")
    ] = None,
    label: Label = None,
    tenant: Tenant = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also those that have ended.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the ids.")] = False,
) -> None:
    """List sandboxes that live, oldest first."""
    states = tuple(state or (() if everything else LIVE))
    with client() as server:
        found = server.sandboxes(states=states, labels=pairs(label, "label"), tenant=tenant)
    if current.json:
        emit_json([item["id"] for item in found] if quiet else found)
    elif quiet:
        for item in found:
            print(item["id"])
    else:
        rows = [_row(item) for item in found]
        table(("id", "name", "state", "runtime", "created", "active", "labels"), rows, state=2)


def _row(item: "Sandbox") -> tuple[object, ...]:
    labels = ",".join(f"{key}={value}" for key, value in item["labels"].items())
    created, active = moment(item["created_at"]), moment(item["last_active_at"])
    return item["id"], item["name"], item["state"], item["runtime"], created, active, labels


@command(app, "show")
def show(ref: Ref) -> None:
    """Show everything about a sandbox."""
    with client() as server:
        found = server.get(ref)
    if current.json:
        emit_json(found)
        return
    details(
        {
            "id": found["id"],
            "name": found["name"],
            "state": found["state"],
            "reason": found["message"] or found["reason"],
            "runtime": found["runtime"],
            "image": found["image"],
            "template": found["template"],
            "tenant": found["tenant"],
            "labels": " ".join(f"{key}={value}" for key, value in found["labels"].items()),
            "metadata": found["metadata"],
            "environment": " ".join(found["environment"]),
            "limits": _limits(found),
            "network": found["network"],
            "workspace": found["workspace"],
            "created": moment(found["created_at"]),
            "created by": found["created_by"],
            "last active": moment(found["last_active_at"]),
            "ended": moment(found["ended_at"]),
            "expires": moment(found["expires_at"]),
            "idle timeout": span(found["idle_timeout"]),
            "auto-delete": span(found["auto_delete"]),
        }
    )


def _limits(found: "Sandbox") -> str:
    """Each limit, and how well this host enforces it where that is not in full."""
    limits: Mapping[str, Any] = found["limits"]
    words = []
    for name, value in limits.items():
        if value is None:
            continue
        held = found["enforcement"].get(name, "full")
        shown = size(int(value)) if name in {"memory", "disk"} else f"{value:g}"
        words.append(f"{name} {shown}{'' if held == 'full' else f' (enforced: {held})'}")
    return ", ".join(words)


@command(app, "update")
def update(
    ref: Ref,
    name: Name = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", "-l", metavar="K=V", help="The labels from now on.")
    ] = None,
    ttl: Annotated[
        str | None, typer.Option("--ttl", metavar="TIME", help="Counted from now; or none.")
    ] = None,
    idle_timeout: Annotated[
        str | None, typer.Option("--idle-timeout", metavar="TIME", help="Or none.")
    ] = None,
    auto_delete: Annotated[str | None, typer.Option("--auto-delete", metavar="TIME", help="Or none.")] = None,
    metadata: Metadata = None,
) -> None:
    """Change a sandbox's name, labels, metadata or times. What is left out stays."""
    changes: dict[str, Any] = given(name=name, metadata=json_object(metadata))
    if label is not None:
        changes["labels"] = pairs([item for item in label if item], "label")
    for field, text in (("ttl", ttl), ("idle_timeout", idle_timeout), ("auto_delete", auto_delete)):
        if text is not None:
            changes[field] = limit(text, duration)
    if not changes:
        raise Invalid("nothing to change", reason="usage", hint="see: paddock sandbox update --help")
    with client() as server:
        changed = server.update(ref, changes)
    emit_json(changed) if current.json else print(changed["id"])


@command(app, "pause")
def pause(refs: Refs) -> None:
    """Freeze the processes of sandboxes; they keep their memory."""
    _each(refs, lambda server, ref: server.pause(ref))


@command(app, "resume")
def resume(refs: Refs) -> None:
    """Let paused sandboxes go on."""
    _each(refs, lambda server, ref: server.resume(ref))


@command(app, "stop")
def stop(refs: Refs) -> None:
    """End the processes of sandboxes; their files stay until they are deleted."""
    _each(refs, lambda server, ref: server.stop(ref))


@command(app, "delete")
def delete(
    refs: SomeRefs = None,
    everything: Annotated[bool, typer.Option("--all", help="Every sandbox there is.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete sandboxes with all that is in them."""
    if bool(refs) == everything:
        raise Invalid(
            "name sandboxes, or say --all", reason="usage", hint="see: paddock sandbox delete --help"
        )
    if not everything:
        _each(refs or [], lambda server, ref: server.delete(ref))
        return
    with client() as server:
        found = [item["id"] for item in server.sandboxes()]
    if found and not yes:
        _confirm(len(found))
    # What somebody else deletes meanwhile is what was wanted.
    _each(found, lambda server, ref: server.delete(ref), gone_is_fine=True)


def _confirm(count: int) -> None:
    import sys

    if not sys.stdin or not sys.stdin.isatty():
        raise Invalid(
            f"this would delete {count} sandboxes, and there is nobody to ask",
            reason="usage",
            hint="add --yes",
        )
    if not typer.confirm(f"Delete {count} sandboxes with all that is in them?", err=True):
        raise typer.Exit(1)


@command(app, "stats")
def stats(ref: Ref) -> None:
    """Show what a sandbox uses now."""
    with client() as server:
        found = server.stats(ref)
    if current.json:
        emit_json(found)
        return
    details(
        {
            "memory": size(found["memory"]),
            "memory peak": size(found["memory_peak"]),
            "cpu time": span(found["cpu_seconds"]),
            "processes": found["processes"],
            "disk": size(found["disk"]),
            "oom kills": found["oom_kills"],
            "running execs": found["execs_running"],
        }
    )


def _each(
    refs: list[str], act: Callable[["Client", str], "Sandbox | None"], *, gone_is_fine: bool = False
) -> None:
    """Do it to each one, whatever happens to the others; the first failure decides the exit code."""
    code = 0
    done: list[Any] = []
    with client() as server:
        for ref in refs:
            try:
                result = act(server, ref)
                done.append(result or {"id": ref})
                if not current.json:
                    print(plain(ref))
            except PaddockError as error:
                if gone_is_fine and error.status == 404:
                    continue
                report(error)
                code = code or error.exit_code
    if current.json:
        emit_json(done)
    if code:
        raise typer.Exit(code)
