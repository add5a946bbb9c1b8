"""From what a caller asks for to a sandbox's record and the runtime's spec."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Any

from paddock.config import DataDir, Settings
from paddock.errors import Invalid, Unsupported
from paddock.runtimes.base import Enforcement, Limits, Spec
from paddock.sandboxes.model import LimitSet, SandboxRecord
from paddock.sandboxes.requests import CreateSandbox, LimitRequest

DEFAULT_TEMPLATE = "default"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


def new_sandbox_id() -> str:
    """A DNS label that begins with a letter; 62 bits of chance."""
    return "sb-" + "".join(secrets.choice(_ALPHABET) for _ in range(12))


def limits_of(request: LimitRequest, settings: Settings) -> LimitSet:
    defaults = settings.limits
    return LimitSet(
        memory=request.memory or defaults.memory,
        cpus=request.cpus or defaults.cpus,
        processes=request.processes or defaults.processes,
        disk=request.disk or defaults.disk,
        open_files=request.open_files or defaults.open_files,
    )


def plan(request: CreateSandbox, settings: Settings, slot: int, by: str | None) -> SandboxRecord:
    if request.template != DEFAULT_TEMPLATE:
        raise Invalid(f"there is no template {request.template!r}", reason="template_unknown")
    now = time.time()
    ttl = request.ttl if "ttl" in request.model_fields_set else settings.ttl
    idle = request.idle_timeout if "idle_timeout" in request.model_fields_set else settings.idle_timeout
    return SandboxRecord(
        id=request.id or new_sandbox_id(),
        name=request.name,
        tenant=request.tenant,
        runtime=request.runtime or settings.default_runtime,
        image=request.image,
        labels=request.labels,
        metadata=request.metadata,
        environment=request.environment,
        limits=limits_of(request.limits, settings),
        strict=settings.strict if request.strict is None else request.strict,
        ttl=ttl,
        idle_timeout=idle,
        auto_delete=request.auto_delete,
        created_at=now,
        updated_at=now,
        last_active_at=now,
        expires_at=now + ttl if ttl else None,
        created_by=by,
        secret=secrets.token_hex(32),
        slot=slot,
        disk_exact=request.limits.disk is not None,
    )


def spec_of(record: SandboxRecord, data: DataDir, storage: Path | None) -> Spec:
    limits: dict[str, Any] = record.limits.model_dump()
    return Spec(
        id=record.id,
        folder=data.sandboxes / record.id,
        slot=record.slot,
        limits=Limits(**limits),
        storage=storage,
        hostname=record.name or record.id,
        environment=record.environment,
        image=record.image,
        disk_exact=record.disk_exact,
    )


def insist(enforcement: dict[str, Enforcement]) -> None:
    """Strict: every limit holds in full, or there is no sandbox."""
    weak = {name: how for name, how in enforcement.items() if how is not Enforcement.FULL}
    if weak:
        raise Unsupported(
            "this host cannot enforce "
            + ", ".join(f"{name} ({how.value})" for name, how in sorted(weak.items())),
            reason="limit_unenforceable",
            hint="leave out strict, give a disk limit by name, or see what is missing: paddock doctor",
        )
