"""Numbers for Prometheus, and reference 5's names for the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from paddock import __version__
from paddock.sandboxes.model import State

if TYPE_CHECKING:
    from paddock.api.services import Services

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)


class Metrics:
    def __init__(self, services: Services) -> None:
        # A registry of its own: several apps may live in one process.
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "paddock_requests", "Answered requests", ["action", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "paddock_request_seconds",
            "Time to the answer's first byte",
            ["action"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._failures = Counter(
            "paddock_failures", "Failed requests by reason", ["reason"], registry=self.registry
        )
        # Looking a child up by its labels costs more than counting.
        self._counts: dict[tuple[str, int], Counter] = {}
        self._times: dict[str, Histogram] = {}
        self.registry.register(_Live(services))
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)

    def observe(self, action: str, status: int, seconds: float, reason: str | None) -> None:
        count = self._counts.get((action, status))
        if count is None:
            count = self._counts[action, status] = self._requests.labels(action, str(status))
        count.inc()
        time = self._times.get(action)
        if time is None:
            time = self._times[action] = self._seconds.labels(action)
        time.observe(seconds)
        if reason is not None:
            self._failures.labels(reason).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def expvar(self) -> dict[str, Any]:
        """What reference 5 shows at the same address, as JSON."""

        def total(action: str) -> int:
            return int(sum(c._value.get() for (name, _), c in self._counts.items() if name == action))

        created = total("sandbox.create")
        spent = self._times.get("sandbox.create")
        average = spent._sum.get() * 1000 / created if spent is not None and created else 0.0
        return {
            "sandbox_create_total": created,
            "sandbox_create_warm_hit_total": 0,
            "sandbox_create_cold_total": created,
            "sandbox_exec_total": total("exec.start"),
            "sandbox_delete_total": total("sandbox.delete"),
            "warm_pool_desired": 0,
            "warm_pool_ready": 0,
            "sandbox_cache_mode": "emptydir",
            "sandbox_create_ready_ms_avg": round(average, 3),
        }


class _Live(Collector):
    """What is counted when asked for."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterator[GaugeMetricFamily]:
        version = GaugeMetricFamily("paddock_info", "The version", labels=["version"])
        version.add_metric([__version__], 1)
        yield version
        states = GaugeMetricFamily("paddock_sandboxes", "Sandboxes by state", labels=["state"])
        counts = dict.fromkeys(State, 0)
        for sandbox in self._services.sandboxes.list(limit=1_000_000):
            counts[State(sandbox.state)] += 1
        for state, count in counts.items():
            if state is not State.DELETED:
                states.add_metric([state.value], count)
        yield states
        yield GaugeMetricFamily(
            "paddock_events_last_id", "The newest event", value=float(self._services.events.last_id)
        )
