"""An exec over a WebSocket: its output to the client, the client's input to it.

To the client: {"type": "started"}, then output (binary frames: one byte of stream, eight of position, the
bytes; or JSON events with mode=json), then {"type": "exit"} and the close. From the client: binary frames are
input, and JSON messages say the rest: stdin, eof, signal, resize, cancel.
Closing the socket leaves the exec running, unless kill=1.
"""

import asyncio
import base64
import binascii
import json
import struct
from contextlib import suppress
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from paddock.api.access import API
from paddock.api.call import actor, call_of
from paddock.api.faults import as_paddock_error, unreadable
from paddock.api.gate import PROTOCOL, TOKEN_PROTOCOL
from paddock.api.output import Encoding, Wanted, exit_event, gap_event, output_events
from paddock.api.routing import Given, exec_id_of
from paddock.api.services import Services
from paddock.errors import Invalid, PaddockError
from paddock.sandboxes.execlog import Gap
from paddock.sandboxes.model import Exec
from paddock.sandboxes.requests import ExecRequest, SignalRequest, TerminalSize

routes = APIRouter(prefix=API, redirect_slashes=False)

FIRST_MESSAGE_SECONDS = 30.0
GOING_AWAY = 1012
FAILED = 1011
REFUSED = 1008
TOO_BIG = 1009
_FRAME = struct.Struct(">BQ")
_STREAMS = {"stdout": 1, "stderr": 2}

Mode = Annotated[Literal["binary", "json"], Query()]
After = Annotated[int, Query(ge=0, le=2**62)]


class Begin(BaseModel):
    model_config = ConfigDict(extra="forbid")
    start: ExecRequest


def chosen_protocol(websocket: WebSocket) -> str | None:
    """A browser gives up when none of its protocols is taken; the token's is taken only when alone."""
    offered: list[str] = websocket.scope.get("subprotocols", [])
    if PROTOCOL in offered:
        return PROTOCOL
    return next((name for name in offered if name.startswith(TOKEN_PROTOCOL)), None)


@routes.websocket("/sandboxes/{ref}/execs/{exec_id}/attach")
async def attach(
    websocket: WebSocket,
    services: Given,
    ref: str,
    exec_id: str,
    after: After = 0,
    mode: Mode = "binary",
    encoding: Encoding = "text",
    kill: bool = False,
) -> None:
    exec_ = await services.sandboxes.get_exec(ref, exec_id_of(exec_id))
    await websocket.accept(chosen_protocol(websocket))
    wanted = Wanted(exec_.sandbox_id, exec_.id, after, True, encoding)
    await _Attached(websocket, services, wanted, mode, kill).serve(exec_)


@routes.websocket("/sandboxes/{ref}/attach")
async def start_attached(
    websocket: WebSocket,
    services: Given,
    ref: str,
    mode: Mode = "binary",
    encoding: Encoding = "text",
    kill: bool = False,
) -> None:
    """The first message says what to start."""
    sandbox = services.sandboxes.get(ref)
    await websocket.accept(chosen_protocol(websocket))
    try:
        exec_ = await _begin(websocket, services, sandbox.id)
    except WebSocketDisconnect:
        return
    except (PaddockError, ValidationError, TimeoutError) as error:
        known = as_paddock_error(error) or Invalid(
            "the first message, which says what to start, did not come"
        )
        call_of(websocket).reason = known.reason
        await _close_with(websocket, known, REFUSED)
        return
    call_of(websocket).target += f"/{exec_.id}"
    wanted = Wanted(sandbox.id, exec_.id, 0, True, encoding)
    await _Attached(websocket, services, wanted, mode, kill).serve(exec_)


async def _begin(websocket: WebSocket, services: Services, sandbox_id: str) -> Exec:
    async with asyncio.timeout(FIRST_MESSAGE_SECONDS):
        message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1005))
    text = message.get("text")
    if text is None:
        raise Invalid('the first message is JSON: {"start": {"command": [...]}}')
    if len(text) > services.settings.max_request_bytes:
        raise Invalid("the first message is too large")
    request = Begin.model_validate_json(text).start
    started = request.model_copy(update={"background": True})
    return await services.sandboxes.start_exec(sandbox_id, started, by=actor(websocket))


async def _close_with(websocket: WebSocket, error: PaddockError, code: int) -> None:
    try:
        await websocket.send_text(json.dumps({"type": "error", **error.as_dict()}))
        await websocket.close(code, error.reason[:120])
    except (OSError, RuntimeError, WebSocketDisconnect):
        return


class _Attached:
    def __init__(
        self, websocket: WebSocket, services: Services, wanted: Wanted, mode: str, kill: bool
    ) -> None:
        self._socket = websocket
        self._services = services
        self._wanted = wanted
        self._binary = mode == "binary"
        self._kill = kill

    async def serve(self, exec_: Exec) -> None:
        await self._send({"type": "started", "exec": exec_.model_dump(mode="json")})
        writer = asyncio.create_task(self._write())
        reader = asyncio.create_task(self._read())
        closing = asyncio.create_task(self._services.closing.wait())
        tasks = (writer, reader, closing)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await self._finish(writer, reader, closing)

    async def _finish(
        self, writer: asyncio.Task[None], reader: asyncio.Task[None], closing: asyncio.Task[Any]
    ) -> None:
        if not writer.cancelled():
            error = writer.exception()
            if error is None:
                # A client that has heard of the exit may be gone by now.
                with suppress(WebSocketDisconnect, RuntimeError):
                    await self._socket.close(1000)
            elif not isinstance(error, OSError | WebSocketDisconnect | RuntimeError):
                known = error if isinstance(error, PaddockError) else PaddockError("the server failed")
                await _close_with(self._socket, known, FAILED)
        elif not closing.cancelled():
            await self._socket.close(GOING_AWAY, "shutting_down")
        elif not reader.cancelled():
            await self._left(reader.exception())

    async def _left(self, error: BaseException | None) -> None:
        """The client has gone, or has sent what cannot be understood."""
        if isinstance(error, PaddockError):
            await _close_with(self._socket, error, TOO_BIG if error.status == 413 else REFUSED)
        if self._kill:
            try:
                await self._services.sandboxes.cancel_exec(self._wanted.ref, self._wanted.exec_id)
            except PaddockError as ended:
                call_of(self._socket).reason = ended.reason

    async def _send(self, event: dict[str, Any]) -> None:
        await self._socket.send_text(json.dumps(event, separators=(",", ":"), ensure_ascii=False))

    async def _write(self) -> None:
        if not self._binary:
            async for event in output_events(self._services, self._wanted):
                if event["type"] != "start":
                    await self._send(event)
            return
        wanted, sandboxes = self._wanted, self._services.sandboxes
        async for piece in sandboxes.output(wanted.ref, wanted.exec_id, after=wanted.after):
            if isinstance(piece, Gap):
                await self._send(gap_event(piece))
            else:
                head = _FRAME.pack(_STREAMS[piece.stream], piece.position)
                await self._socket.send_bytes(head + piece.data)
        await self._send(exit_event(await sandboxes.get_exec(wanted.ref, wanted.exec_id)))

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            try:
                if message.get("bytes") is not None:
                    await self._input(message["bytes"])
                else:
                    await self._obey(message.get("text") or "")
            except ValidationError as error:
                await self._complain(unreadable(error.errors(include_url=False, include_input=False)))
            except PaddockError as error:
                await self._complain(error)

    async def _complain(self, error: PaddockError) -> None:
        await self._send({"type": "error", **error.as_dict()})

    async def _input(self, data: bytes) -> None:
        await self._services.sandboxes.write_stdin(self._wanted.ref, self._wanted.exec_id, data)

    async def _obey(self, text: str) -> None:
        try:
            message = json.loads(text)
        except ValueError:
            raise Invalid("a text message is JSON") from None
        if not isinstance(message, dict):
            raise Invalid("a text message is a JSON object")
        kind = message.pop("type", None)
        sandboxes, ref, exec_id = self._services.sandboxes, self._wanted.ref, self._wanted.exec_id
        if kind == "stdin":
            await self._input(_bytes_of(message))
        elif kind == "eof":
            await sandboxes.close_stdin(ref, exec_id)
        elif kind == "signal":
            wanted = SignalRequest.model_validate(message)
            await sandboxes.signal_exec(ref, exec_id, int(wanted.signal), tree=wanted.tree)
        elif kind == "resize":
            size = TerminalSize.model_validate(message)
            await sandboxes.resize_exec(ref, exec_id, size.rows, size.columns)
        elif kind == "cancel":
            await sandboxes.cancel_exec(ref, exec_id)
        else:
            raise Invalid(f"unknown message type {kind!r}", hint="stdin, eof, signal, resize or cancel")


def _bytes_of(message: dict[str, Any]) -> bytes:
    text, encoded = message.get("data"), message.get("data_base64")
    if isinstance(text, str) and encoded is None:
        return text.encode(errors="surrogateescape")
    if isinstance(encoded, str) and text is None:
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error:
            raise Invalid("data_base64 is not base64") from None
    raise Invalid("stdin needs data or data_base64")
