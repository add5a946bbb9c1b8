"""`paddock files ...`: files in a sandbox, one at a time. Whole folders: `paddock cp`."""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.command import command, new_app
from paddock.cli.connect import client
from paddock.cli.context import current
from paddock.cli.options import FilePath, Ref
from paddock.cli.output import details, emit_json, emit_line, moment, on_terminal, size, table
from paddock.cli.report import note, plain
from paddock.errors import Invalid

if TYPE_CHECKING:
    from paddock.client.shapes import Entry

app = new_app("Read, write and list files in a sandbox.", no_args_is_help=True)

READ = 256 << 10
Recursive = Annotated[bool, typer.Option("--recursive", "-r", help="With everything in it.")]


@command(app, "ls")
def ls(
    ref: Ref,
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="The workspace when left out.")] = ".",
    depth: Annotated[int, typer.Option(min=1, max=64, help="How many levels.")] = 1,
    long: Annotated[bool, typer.Option("--long", "-l", help="With mode, size and time.")] = False,
) -> None:
    """List a folder."""
    with client() as server:
        found = server.list_files(ref, path, depth=depth)
    if current.json:
        emit_json(found)
        return
    if long or on_terminal():
        table(("mode", "size", "changed", "name"), [_row(entry, depth > 1) for entry in found["entries"]])
    else:
        for entry in found["entries"]:
            print(_printable(_label(entry, depth > 1)))
    if found["truncated"]:
        note("there is more than is shown")


def _row(entry: "Entry", whole_path: bool) -> tuple[object, ...]:
    name = _label(entry, whole_path)
    if entry["target"]:
        name = f"{name} -> {entry['target']}"
    letter = {"directory": "d", "symlink": "l", "file": "-"}.get(entry["type"], "?")
    return f"{letter}{entry['mode']}", size(entry["size"]), moment(entry["mtime"] / 1e9), _printable(name)


def _label(entry: "Entry", whole_path: bool) -> str:
    return (entry["path"] if whole_path else entry["name"]) + ("/" if entry["type"] == "directory" else "")


def _printable(name: str) -> str:
    """A name may hold bytes that are no text: these are shown as they would be escaped."""
    return plain(name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"))


@command(app, "cat")
def cat(ref: Ref, path: FilePath) -> None:
    """Print a file, byte for byte."""
    with client() as server, server.read_file(ref, path) as answer:
        if current.json:
            _emit_content(path, answer.read())
            return
        for data in answer.chunks():
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(1, rest) :]


def _emit_content(path: str, data: bytes) -> None:
    import base64

    try:
        emit_json({"path": path, "content": data.decode(), "encoding": "utf-8"})
    except UnicodeDecodeError:
        emit_json({"path": path, "content": base64.b64encode(data).decode(), "encoding": "base64"})


@command(app, "put")
def put(
    ref: Ref,
    path: FilePath,
    source: Annotated[
        str, typer.Argument(metavar="[FILE]", help="A file here; stdin when left out.", show_default=False)
    ] = "-",
    mode: Annotated[str | None, typer.Option(help="In octal, e.g. 755.")] = None,
) -> None:
    """Write a file, all of it or nothing, from a file here or from stdin."""
    with client() as server:
        entry = server.write_file(ref, path, _content(source), mode=mode)
    emit_json(entry) if current.json else print(_printable(entry["path"]))


def _content(source: str) -> Iterator[bytes]:
    if source == "-":
        if sys.stdin is not None and sys.stdin.isatty():
            note("reading from the terminal; Ctrl-D ends it")
        while data := os.read(0, READ):
            yield data
        return
    if os.path.isdir(source):
        raise Invalid(f"{source} is a folder", reason="usage", hint="copy folders with: paddock cp")
    with open(source, "rb") as file:
        while data := file.read(READ):
            yield data


@command(app, "rm")
def rm(ref: Ref, path: FilePath, recursive: Recursive = False) -> None:
    """Remove a file, or an empty folder, or with -r all of it."""
    with client() as server:
        server.remove(ref, path, recursive=recursive)
    if current.json:
        emit_json({"removed": path})


@command(app, "mkdir")
def mkdir(
    ref: Ref,
    path: FilePath,
    parents: Annotated[
        bool, typer.Option("--parents", "-p", help="Missing folders above it too; no error if it exists.")
    ] = False,
    mode: Annotated[str | None, typer.Option(help="In octal, e.g. 755.")] = None,
) -> None:
    """Make a folder."""
    with client() as server:
        entry = server.make_folder(ref, path, parents=parents, mode=mode)
    emit_json(entry) if current.json else print(_printable(entry["path"]))


@command(app, "mv")
def mv(
    ref: Ref,
    source: Annotated[str, typer.Argument(metavar="SOURCE", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TARGET", show_default=False)],
    no_overwrite: Annotated[
        bool, typer.Option("--no-overwrite", "-n", help="Refuse when the target exists.")
    ] = False,
) -> None:
    """Move or rename a file or folder."""
    with client() as server:
        entry = server.move(ref, source, target, overwrite=not no_overwrite)
    emit_json(entry) if current.json else print(_printable(entry["path"]))


@command(app, "stat")
def stat(
    ref: Ref,
    path: FilePath,
    no_follow: Annotated[bool, typer.Option("--no-follow", help="Of a link itself.")] = False,
) -> None:
    """Show what a file is."""
    with client() as server:
        entry = server.stat(ref, path, follow=not no_follow)
    if current.json:
        emit_json(entry)
        return
    details(
        {
            "path": _printable(entry["path"]),
            "type": entry["type"],
            "target": entry["target"],
            "size": entry["size"],
            "mode": entry["mode"],
            "owner": f"{entry['uid']}:{entry['gid']}",
            "changed": moment(entry["mtime"] / 1e9),
        }
    )


@command(app, "watch")
def watch(
    ref: Ref,
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="The workspace when left out.")] = ".",
    no_recursive: Annotated[bool, typer.Option("--no-recursive", help="Not the folders below.")] = False,
) -> None:
    """Show changes below a path as they happen."""
    with client() as server:
        for event in server.watch(ref, path, recursive=not no_recursive):
            if current.json:
                emit_line(event)
            elif event["event"] == "ready":
                note(f"watching {path}")
            else:
                moved = f" -> {_printable(event['to'])}" if event.get("to") else ""
                print(f"{event['event']:<9} {_printable(event.get('path') or '')}{moved}", flush=True)
