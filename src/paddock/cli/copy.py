"""`paddock cp`: files and folders in and out of sandboxes, with the rules of `docker cp`."""

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.command import command, new_app
from paddock.cli.connect import client
from paddock.cli.context import current
from paddock.cli.output import emit_json
from paddock.cli.report import note
from paddock.errors import Conflict, Invalid, NotFound

if TYPE_CHECKING:
    from paddock.client import Client
    from paddock.client.shapes import Entry

app = new_app()

_REMOTE = re.compile(r"(?P<ref>[A-Za-z0-9][A-Za-z0-9_-]*):(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """One end of a copy. `ref` is None for this machine."""

    ref: str | None
    path: str

    @classmethod
    def parse(cls, text: str) -> "Place":
        match = _REMOTE.fullmatch(text)
        if match is None:
            if not text:
                raise Invalid("a path is missing", reason="usage")
            return cls(None, text)
        return cls(match["ref"], match["path"] or ".")

    @property
    def is_stream(self) -> bool:
        return self.ref is None and self.path == "-"

    @property
    def means_folder(self) -> bool:
        return self.path.endswith("/") or os.path.basename(self.path) in (".", "..")

    @property
    def means_contents(self) -> bool:
        return self.path in (".", "/") or self.path.endswith("/.")


@command(app, "cp")
def cp(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="PATH here, ID:PATH, or -.", show_default=False)
    ],
    target: Annotated[
        str, typer.Argument(metavar="DST", help="PATH here, ID:PATH, or -.", show_default=False)
    ],
) -> None:
    """Copy files or folders between here and a sandbox.

    A folder as the target takes the source under its own name; SRC/. copies only what is in SRC. `-` is
    stdin or stdout: a file's bytes, a folder as a tar archive. A local name with a colon: write ./name.
    """
    from paddock.cli.transfer import Progress

    here, there = Place.parse(source), Place.parse(target)
    if (here.ref is None) == (there.ref is None):
        raise Invalid(
            "one of the two has to be in a sandbox, and only one",
            reason="usage",
            hint="write it as ID:PATH, e.g. paddock cp ./src my-sandbox:/workspace",
        )
    with client() as server, Progress(quiet=current.json) as progress:
        if there.ref is not None:
            _upload(server, here, there, progress)
        else:
            _download(server, here, there, progress)
    if current.json:
        emit_json({"bytes": progress.done, "skipped": progress.skipped})
    else:
        for reason in progress.skipped:
            note(f"left out {reason}")


def _remote_entry(server: "Client", place: Place) -> "Entry | None":
    try:
        return server.stat(place.ref or "", place.path)
    except NotFound as error:
        if error.reason == "path_not_found":
            return None
        raise


def _safe_name(entry: "Entry") -> str:
    """Its name comes from the sandbox, and must not lead anywhere."""
    name = entry["name"]
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise Invalid(f"{name!r} is not a name for a copy", hint="name the target file or folder itself")
    return name


def _upload(server: "Client", here: Place, there: Place, progress: "Progress") -> None:
    from paddock.cli.transfer import folder_as_tar, read_stdin, send_file

    entry = _remote_entry(server, there)
    into = entry is not None and entry["type"] == "directory"
    ref = there.ref or ""
    if here.is_stream:
        if into:
            server.unpack(ref, there.path, read_stdin(progress))
        else:
            server.write_file(ref, there.path, read_stdin(progress))
        return
    if not os.path.lexists(here.path):
        raise NotFound(f"{here.path} does not exist", reason="path_not_found")
    name = os.path.basename(os.path.abspath(here.path))
    if not os.path.isdir(here.path):
        if entry is None and there.means_folder:
            raise NotFound(f"the folder {there.path} does not exist", reason="path_not_found")
        send_file(
            server, ref, here.path, f"{there.path.rstrip('/')}/{name}" if into else there.path, progress
        )
        return
    if entry is not None and not into:
        raise Conflict(f"{there.path} is not a folder", reason="not_a_directory")
    if entry is None:
        server.make_folder(ref, there.path)
    under = name if into and not here.means_contents else ""
    server.unpack(ref, there.path, folder_as_tar(here.path, under, progress))


def _download(server: "Client", there: Place, here: Place, progress: "Progress") -> None:
    from paddock.cli.transfer import fetch_file, fetch_folder, write_stdout

    ref = there.ref or ""
    entry = server.stat(ref, there.path)
    is_folder = entry["type"] == "directory"
    if here.is_stream:
        answer = server.pack(ref, there.path) if is_folder else server.read_file(ref, there.path)
        with answer:
            write_stdout(answer.chunks(), progress)
        return
    into = os.path.isdir(here.path)
    if not is_folder:
        if not into and here.means_folder:
            raise NotFound(f"the folder {here.path} does not exist", reason="path_not_found")
        target = os.path.join(here.path, _safe_name(entry)) if into else here.path
        fetch_file(server, ref, there.path, target, entry["mode"], progress)
        return
    if not into and os.path.lexists(here.path):
        raise Conflict(f"{here.path} is not a folder", reason="not_a_directory")
    target = os.path.join(here.path, _safe_name(entry)) if into and not there.means_contents else here.path
    fetch_folder(server, ref, there.path, target, progress)


if TYPE_CHECKING:
    from paddock.cli.transfer import Progress
