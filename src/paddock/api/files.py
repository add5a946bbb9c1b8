"""Files in a sandbox: read, written, listed, moved, watched, packed and unpacked, as streams of any size."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import Response

from paddock.api.body import accepts, accepts_bytes, as_json, parsed
from paddock.api.call import call_of
from paddock.api.output import sse_frame
from paddock.api.ranges import Range, etag_of, parse_range
from paddock.api.routing import Given, Ref, router
from paddock.api.schemas import ErrorBody, MakeFolder, Move
from paddock.api.services import Services
from paddock.api.streaming import Streaming, aclose, begun
from paddock.errors import Conflict, PaddockError, Unavailable
from paddock.sandboxes.files import FileStream
from paddock.sandboxes.model import Entry, FileEvent, Listing, Unpacked
from paddock.sandboxes.requests import Path as PathText

routes = router("files")

PathQuery = Annotated[PathText, Query(description="Absolute, or relative to the workspace")]
Mode = Annotated[str | None, Query(pattern=r"^0?[0-7]{3,4}$", description="In octal, as chmod has it")]
_BYTES: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_TAR: dict[str, Any] = {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}}
_SSE: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}


@routes.head("/sandboxes/{ref}/files", include_in_schema=False)
@routes.get(
    "/sandboxes/{ref}/files",
    response_class=Response,
    responses={
        200: {"content": _BYTES, "description": "The file"},
        206: {"content": _BYTES, "description": "The range asked for"},
        304: {"description": "It is as you know it"},
        416: {"model": ErrorBody, "description": "The range begins behind the end"},
    },
)
async def read_file(
    request: Request,
    services: Given,
    ref: Ref,
    path: PathQuery,
    range_: Annotated[str | None, Header(alias="Range")] = None,
    if_range: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """The bytes of a file, or a range of them."""
    if request.method == "HEAD" or range_ or if_none_match:
        entry = await services.sandboxes.files.stat(ref, path)
        _require_file(entry)
        etag = etag_of(entry)
        if if_none_match and etag in [tag.strip() for tag in if_none_match.split(",")]:
            return Response(status_code=304, headers={"ETag": etag})
        if request.method == "HEAD":
            return Response(headers=_file_headers(entry, entry.size), media_type="application/octet-stream")
        part = parse_range(range_, entry.size) if range_ and if_range in (None, etag) else None
        if part is not None:
            return await _send_range(services, ref, path, part)
    stream = await services.sandboxes.files.read(ref, path)
    # Files that the kernel makes up, as in /proc, claim to be empty.
    length = stream.entry.size or None
    return Streaming(
        services,
        _exactly(stream, length),
        "application/octet-stream",
        headers=_file_headers(stream.entry, length),
    )


async def _send_range(services: Services, ref: str, path: str, part: Range) -> Response:
    stream = await services.sandboxes.files.read(ref, path, offset=part.start, length=part.length)
    headers = _file_headers(stream.entry, part.length) | {"Content-Range": part.header}
    return Streaming(
        services, _exactly(stream, part.length), "application/octet-stream", status=206, headers=headers
    )


def _require_file(entry: Entry) -> None:
    if entry.type == "directory":
        raise Conflict(
            f"{entry.path} is a directory", reason="is_a_directory", hint="list it, or get it as an archive"
        )


def _file_headers(entry: Entry, length: int | None) -> dict[str, str]:
    headers = {"ETag": etag_of(entry), "Accept-Ranges": "bytes"}
    if length is not None:
        headers["Content-Length"] = str(length)
    return headers


async def _exactly(stream: FileStream, length: int | None) -> AsyncIterator[bytes]:
    """As many bytes as were promised, though the file may grow or shrink while it is read."""
    left = length
    try:
        async for part in stream:
            if left is not None:
                part = part[:left]
                left -= len(part)
            if part:
                yield part
            if left == 0:
                break
    finally:
        await stream.aclose()
    if left:
        raise Unavailable("the file became shorter while it was read", reason="file_changed")


@routes.put(
    "/sandboxes/{ref}/files",
    status_code=201,
    response_model=Entry,
    openapi_extra=accepts_bytes(),
)
async def write_file(
    request: Request,
    services: Given,
    ref: Ref,
    path: PathQuery,
    mode: Mode = None,
    parents: Annotated[bool, Query(description="Make missing folders")] = True,
    exclusive: Annotated[bool, Query(description="Refuse when the file exists")] = False,
    mtime: Annotated[int | None, Query(ge=0, le=2**62, description="Nanoseconds since 1970")] = None,
) -> Response:
    """Write the body to a file, all of it or nothing."""
    _note(request, ref, path)
    entry = await services.sandboxes.files.write(
        ref, path, request.stream(), mode=mode, parents=parents, exclusive=exclusive, mtime=mtime
    )
    return as_json(entry, 201)


@routes.delete("/sandboxes/{ref}/files", status_code=204, response_class=Response)
async def remove_file(
    request: Request,
    services: Given,
    ref: Ref,
    path: PathQuery,
    recursive: Annotated[bool, Query(description="A folder with what is in it")] = False,
) -> Response:
    _note(request, ref, path)
    await services.sandboxes.files.remove(ref, path, recursive=recursive)
    return Response(status_code=204)


@routes.get("/sandboxes/{ref}/files/stat", response_model=Entry)
async def stat_file(
    services: Given,
    ref: Ref,
    path: PathQuery,
    follow: Annotated[bool, Query(description="What a link points to, not the link")] = True,
) -> Response:
    return as_json(await services.sandboxes.files.stat(ref, path, follow=follow))


@routes.get("/sandboxes/{ref}/files/list", response_model=Listing)
async def list_files(
    services: Given,
    ref: Ref,
    path: PathQuery = ".",
    depth: Annotated[int, Query(ge=1, le=64)] = 1,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 10_000,
) -> Response:
    return as_json(await services.sandboxes.files.list(ref, path, depth=depth, limit=limit))


@routes.post(
    "/sandboxes/{ref}/files/mkdir", status_code=201, response_model=Entry, openapi_extra=accepts(MakeFolder)
)
async def make_folder(request: Request, services: Given, ref: Ref) -> Response:
    wanted = await parsed(request, MakeFolder)
    _note(request, ref, wanted.path)
    entry = await services.sandboxes.files.mkdir(ref, wanted.path, mode=wanted.mode, parents=wanted.parents)
    return as_json(entry, 201)


@routes.post("/sandboxes/{ref}/files/move", response_model=Entry, openapi_extra=accepts(Move))
async def move_file(request: Request, services: Given, ref: Ref) -> Response:
    wanted = await parsed(request, Move)
    _note(request, ref, f"{wanted.source} -> {wanted.target}")
    files = services.sandboxes.files
    return as_json(await files.move(ref, wanted.source, wanted.target, overwrite=wanted.overwrite))


@routes.get(
    "/sandboxes/{ref}/files/watch",
    response_class=Response,
    responses={200: {"content": _SSE, "description": "One event per change; the first is `ready`"}},
)
async def watch_files(services: Given, ref: Ref, path: PathQuery = ".", recursive: bool = True) -> Response:
    """Follow what changes below a path."""
    await services.sandboxes.files.stat(ref, path)
    events = services.sandboxes.files.watch(ref, path, recursive=recursive)
    return Streaming(
        services, _watched(events), "text/event-stream", headers={"Cache-Control": "no-store"}, heartbeat=True
    )


async def _watched(events: AsyncIterator[FileEvent]) -> AsyncIterator[bytes]:
    try:
        async for event in events:
            yield sse_frame(event.event, event.model_dump(exclude_none=True))
    except PaddockError as error:
        yield sse_frame("error", error.as_dict())
    finally:
        await aclose(events)


@routes.get(
    "/sandboxes/{ref}/files/archive",
    response_class=Response,
    responses={200: {"content": _TAR, "description": "A tar of the path"}},
)
async def pack_files(services: Given, ref: Ref, path: PathQuery = ".") -> Response:
    stream = await services.sandboxes.files.pack(ref, path)
    return Streaming(services, await begun(_exactly(stream, None)), "application/x-tar")


@routes.put(
    "/sandboxes/{ref}/files/archive",
    response_model=Unpacked,
    openapi_extra=accepts_bytes("application/x-tar"),
)
async def unpack_files(request: Request, services: Given, ref: Ref, path: PathQuery = ".") -> Response:
    """Unpack a tar below a path. Nothing in it can reach outside of the sandbox."""
    _note(request, ref, path)
    return as_json(await services.sandboxes.files.unpack(ref, path, request.stream()))


def _note(request: Request, ref: str, path: str) -> None:
    call_of(request).target = f"{ref}:{path}"
