"""What this host can do: for the info page asked once and remembered, for the doctor tried anew each time."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from paddock.api.schemas import AbilityBody, Check, DoctorReport, RuntimeInfo
from paddock.api.services import Services
from paddock.runtimes.base import Pausable, Runtime
from paddock.runtimes.doctor import diagnose


class Probes:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = asyncio.Lock()
        self._known: list[RuntimeInfo] | None = None

    async def runtimes(self) -> list[RuntimeInfo]:
        async with self._lock:
            if self._known is None:
                runtimes = list(self._services.runtimes.values())
                self._known = await _look_at(runtimes)
            return self._known

    async def report(self) -> DoctorReport:
        settings = self._services.settings
        runtime = self._services.runtimes[settings.default_runtime]
        async with self._lock:
            host = await diagnose(settings.data_dir)
        default = next((ability for ability in host if ability.name == runtime.name), None)
        if default is None:
            own = await runtime.probe()
            default, host = own[0], [*own, *host]
        checks = [Check(**asdict(ability)) for ability in host]
        return DoctorReport(healthy=default.works, checks=checks)


async def _look_at(runtimes: list[Runtime]) -> list[RuntimeInfo]:
    found = []
    for runtime in runtimes:
        abilities = [AbilityBody(**asdict(ability)) for ability in await runtime.probe()]
        found.append(
            RuntimeInfo(
                name=runtime.name,
                works=bool(abilities) and abilities[0].works,
                pausable=isinstance(runtime, Pausable),
                abilities=abilities,
            )
        )
    return found
