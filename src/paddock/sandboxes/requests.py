"""What callers ask for, validated at the edge."""

import re
import signal as signals
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

MAX_COMMAND_BYTES = 128 << 10
MAX_ENVIRONMENT_BYTES = 128 << 10
LONGEST = 10 * 365 * 86400.0
"""No duration is longer than ten years: a bound, so that sums of times stay numbers."""


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not contain a NUL byte")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode") from None
    return value


def _variable(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError("an environment name must not be empty nor contain '=' or NUL")
    return name


def _signal(value: int | str) -> int:
    if isinstance(value, str):
        name = value.upper() if value.upper().startswith("SIG") else f"SIG{value.upper()}"
        try:
            return int(signals.Signals[name])
        except KeyError:
            raise ValueError(f"unknown signal {value!r}") from None
    if not 1 <= value <= 64:
        raise ValueError("a signal number is from 1 to 64")
    return value


Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
"""Lowercase letters, digits and '-', at most 63: a DNS label."""
Tenant = Name
Text = Annotated[str, AfterValidator(_no_nul)]
Label = Annotated[str, StringConstraints(max_length=256), AfterValidator(_no_nul)]
LabelKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._/-]{0,126}[A-Za-z0-9])?$")]
Labels = Annotated[dict[LabelKey, Label], Field(max_length=64)]
Variable = Annotated[str, AfterValidator(_variable), AfterValidator(_no_nul)]
Environment = Annotated[dict[Variable, Text], Field(max_length=1024)]
Seconds = Annotated[float, Field(gt=0, le=LONGEST, allow_inf_nan=False)]
Path = Annotated[str, StringConstraints(min_length=1, max_length=4096), AfterValidator(_no_nul)]
Signal = Annotated[int | str, AfterValidator(_signal)]


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitRequest(Request):
    """Limits that differ from the server's defaults. Sizes in bytes."""

    memory: Annotated[int, Field(ge=16 << 20, le=1 << 50)] | None = None
    cpus: Annotated[float, Field(ge=0.01, le=4096, allow_inf_nan=False)] | None = None
    processes: Annotated[int, Field(ge=4, le=4_000_000)] | None = None
    disk: Annotated[int, Field(ge=1 << 20, le=1 << 50)] | None = None
    open_files: Annotated[int, Field(ge=64, le=1 << 20)] | None = None


class CreateSandbox(Request):
    id: Name | None = Field(None, description="Chosen by the caller; made up otherwise")
    name: Name | None = None
    tenant: Tenant | None = Field(None, description="Whose storage /workspace and outputs are on")
    template: Annotated[str, StringConstraints(max_length=128)] = "default"
    runtime: Annotated[str, StringConstraints(max_length=64)] | None = None
    image: Annotated[str, StringConstraints(max_length=512), AfterValidator(_no_nul)] | None = None
    labels: Labels = {}
    metadata: Annotated[dict[str, Any], Field(max_length=256)] = {}
    environment: Environment = {}
    limits: LimitRequest = LimitRequest()
    strict: bool | None = Field(None, description="Refuse when this host cannot enforce a limit")
    ttl: Seconds | None = None
    idle_timeout: Seconds | None = None
    auto_delete: Annotated[float, Field(ge=0, le=LONGEST, allow_inf_nan=False)] | None = None


class UpdateSandbox(Request):
    """What is left out stays; null takes a rule away."""

    name: Name | None = None
    labels: Labels | None = None
    metadata: Annotated[dict[str, Any], Field(max_length=256)] | None = None
    ttl: Seconds | None = Field(None, description="Counted from now")
    idle_timeout: Seconds | None = None
    auto_delete: Annotated[float, Field(ge=0, le=LONGEST, allow_inf_nan=False)] | None = None


class TerminalSize(Request):
    rows: Annotated[int, Field(ge=1, le=4096)] = 24
    columns: Annotated[int, Field(ge=1, le=4096)] = 80


class ExecRequest(Request):
    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{7,63}$")] | None = Field(
        None, description="Asking twice with one id starts one process"
    )
    command: Annotated[list[Text], Field(min_length=1, max_length=4096)]
    cwd: Path | None = Field(None, description="The workspace when left out; relative paths start there")
    environment: Environment = {}
    user: Annotated[str, StringConstraints(max_length=64), AfterValidator(_no_nul)] | None = None
    timeout: Seconds | None = None
    terminal: TerminalSize | None = None
    stdin: Text | None = Field(None, description="Text given as input")
    stdin_base64: str | None = Field(None, description="Bytes given as input")
    open_stdin: bool = Field(False, description="Input follows through the stdin call or the WebSocket")
    background: bool = Field(False, description="Answer at once; otherwise when it has ended")
    labels: Labels = {}

    @model_validator(mode="after")
    def _bounded(self) -> "ExecRequest":
        if not self.command[0]:
            raise ValueError("the command's first word is empty")
        if sum(len(word) + 1 for word in self.command) > MAX_COMMAND_BYTES:
            raise ValueError(
                f"the command is longer than {MAX_COMMAND_BYTES} bytes: put it into a file or stdin"
            )
        if sum(len(k) + len(v) + 2 for k, v in self.environment.items()) > MAX_ENVIRONMENT_BYTES:
            raise ValueError(f"the environment is larger than {MAX_ENVIRONMENT_BYTES} bytes")
        if self.stdin is not None and self.stdin_base64 is not None:
            raise ValueError("give stdin or stdin_base64, not both")
        return self


class SignalRequest(Request):
    signal: Signal
    tree: bool = Field(False, description="To every process of the exec, also those that daemonised")


class CancelRequest(Request):
    grace: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = Field(
        2.0, description="Seconds between SIGTERM and SIGKILL"
    )


def is_name(text: str) -> bool:
    return re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text) is not None
