"""Every setting of the server, with its default."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from paddock.config.sizes import parse_duration, parse_size
from paddock.errors import Invalid

MAX_EXEC_SECONDS = 6 * 3600.0


def _plainly(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Pydantic collects only ValueErrors, and adds the name of the setting to them."""

    def validate(value: Any) -> Any:
        try:
            return parse(value) if isinstance(value, str | int | float) else value
        except Invalid as error:
            raise ValueError(f"{error.message}; {error.hint}") from error

    return validate


def _nothing(value: Any) -> Any:
    """Environment and flags have only text to say that there is no limit."""
    return None if isinstance(value, str) and value.strip().lower() in {"", "none", "off", "never"} else value


def _words(value: Any) -> Any:
    return (
        tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value
    )


Size = Annotated[int, BeforeValidator(_plainly(parse_size))]
Seconds = Annotated[float, BeforeValidator(_plainly(parse_duration))]
MaybeSeconds = Annotated[Seconds | None, BeforeValidator(_nothing)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class LimitDefaults(_Section):
    """What a sandbox gets that asks for nothing else."""

    memory: Size = Field(4 << 30, ge=16 << 20)
    cpus: float = Field(4.0, gt=0)
    processes: int = Field(512, ge=8)
    disk: Size = Field(4 << 30, ge=1 << 20)
    output: Size = Field(64 << 20, ge=64 << 10)
    """Bytes of output kept for each exec."""
    open_files: int = Field(1024, ge=64)


class RateLimit(_Section):
    """Requests of one caller."""

    per_second: float = Field(2000.0, gt=0)
    burst: int = Field(4000, ge=1)


class ExecRetention(_Section):
    """How long, and how many per sandbox, finished execs and their output are kept."""

    seconds: Seconds = 24 * 3600.0
    count: int = Field(1000, ge=1)


def default_data_dir() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/paddock")
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "paddock"


def _default_database(fields: dict[str, Any]) -> str:
    # A wrong data_dir is reported for itself and is absent here.
    return f"sqlite:///{fields.get('data_dir', Path()) / 'private' / 'paddock.db'}"


def _absolute(value: Any) -> Any:
    return Path(value).expanduser().absolute() if isinstance(value, str | Path) else value


class Settings(_Section):
    host: str = "127.0.0.1"
    port: int = Field(8122, ge=0, le=65535)
    data_dir: Annotated[Path, BeforeValidator(_absolute)] = Field(default_factory=default_data_dir)
    database_url: str = Field(default_factory=_default_database)
    no_auth: bool = False
    default_runtime: str = "bubblewrap"
    strict: bool = False
    """Refuse a sandbox whose limits this host cannot enforce in full."""

    limits: LimitDefaults = LimitDefaults()
    exec_timeout: MaybeSeconds = None
    max_exec_timeout: Seconds = Field(MAX_EXEC_SECONDS, gt=0)
    idle_timeout: MaybeSeconds = None
    ttl: MaybeSeconds = None
    max_sandboxes: int = Field(2000, ge=1)

    max_request_bytes: Size = Field(1 << 20, ge=1024)
    """Of a JSON body. Files are streams and have no limit here."""
    rate_limit: RateLimit = RateLimit()
    heartbeat_seconds: Seconds = Field(15.0, gt=0)
    event_retention: int = Field(1_000_000, ge=1000)
    exec_retention: ExecRetention = ExecRetention()
    allowed_hosts: Words = ()
    """Values of the Host header to accept beside the server's own address."""
    allowed_origins: Words = ()

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"

    @model_validator(mode="after")
    def _no_auth_stays_home(self) -> Settings:
        if self.no_auth and not is_loopback(self.host):
            raise ValueError(
                f"no_auth is allowed only on a loopback address, and {self.host} is not one; "
                "leave no_auth out, or listen on 127.0.0.1"
            )
        return self


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
