"""How the server logs: one line per event, for people or as JSON."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from paddock.config import Settings

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure(settings: Settings) -> None:
    level = _LEVELS[settings.log_level]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        # The prettier formatters of exceptions show local variables, and those may hold secrets.
        structlog.processors.format_exc_info,
    ]
    render: Processor
    if settings.log_format == "json":
        render = structlog.processors.JSONRenderer()
    else:
        shared.append(_printable)
        render = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Lines(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    handler.addFilter(_is_true)
    root = logging.getLogger()
    root.handlers = [handler]
    # What libraries have to say below a warning is about themselves.
    root.setLevel(max(level, logging.WARNING))


def _is_true(record: logging.LogRecord) -> bool:
    """uvicorn calls every WebSocket that was refused with a proper answer a broken one."""
    return record.msg != "ASGI callable returned without completing handshake."


class _Lines(structlog.WriteLogger):
    """A log that cannot be written, on a full disk or into a closed pipe, fails nobody's call."""

    def msg(self, message: str) -> None:
        with suppress(OSError):
            super().msg(message)

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


def _printable(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Guests and clients say much of what is logged: they get no control of the reader's terminal, and no
    line of their own. Values that are no text are shown by their repr, which escapes by itself.
    """
    for name, value in event.items():
        if name == "exception":
            event[name] = "\n  ".join(_escape(line) for line in str(value).split("\n"))
        elif isinstance(value, str):
            event[name] = _escape(value)
    return event


def _escape(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
