from __future__ import annotations

from pathlib import Path

import pytest

from paddock.config import DataDir, LimitDefaults, Settings
from paddock.errors import Invalid, Unsupported
from paddock.runtimes.base import Enforcement
from paddock.sandboxes.planning import insist, new_sandbox_id, plan, spec_of
from paddock.sandboxes.requests import CreateSandbox, LimitRequest, is_name

SETTINGS = Settings(ttl=100.0, idle_timeout=50.0, limits=LimitDefaults(memory=1 << 30, cpus=2.0))


def test_ids() -> None:
    ids = {new_sandbox_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(is_name(one) and one[0].isalpha() for one in ids)


def test_defaults_come_from_the_settings() -> None:
    record = plan(CreateSandbox(), SETTINGS, 7, "me")
    assert (record.limits.memory, record.limits.cpus) == (1 << 30, 2.0)
    assert (record.ttl, record.idle_timeout, record.slot, record.created_by) == (100, 50, 7, "me")
    assert record.expires_at == record.created_at + 100
    assert record.runtime == "bubblewrap"
    assert not record.disk_exact
    assert len(bytes.fromhex(record.secret)) == 32
    assert record.secret != plan(CreateSandbox(), SETTINGS, 7, None).secret


def test_what_is_asked_for_counts() -> None:
    request = CreateSandbox(
        id="mine", ttl=None, idle_timeout=5, strict=True, runtime="fake", limits=LimitRequest(disk=1 << 20)
    )
    record = plan(request, SETTINGS, 1, None)
    assert (record.id, record.ttl, record.expires_at, record.idle_timeout) == ("mine", None, None, 5)
    assert (record.strict, record.runtime) == (True, "fake")
    assert (record.limits.disk, record.limits.memory, record.disk_exact) == (1 << 20, 1 << 30, True)


def test_templates() -> None:
    with pytest.raises(Invalid) as caught:
        plan(CreateSandbox(template="other"), SETTINGS, 1, None)
    assert caught.value.reason == "template_unknown"


def test_the_secret_stays_with_the_server() -> None:
    record = plan(CreateSandbox(name="n"), SETTINGS, 3, None)
    public = record.public().model_dump()
    assert not {"secret", "slot", "handle"} & set(public)
    assert record.secret not in record.public().model_dump_json()


def test_spec(tmp_path: Path) -> None:
    record = plan(CreateSandbox(environment={"A": "b"}, image="img"), SETTINGS, 3, None)
    spec = spec_of(record, DataDir(tmp_path), tmp_path / "tenant")
    assert spec.folder == tmp_path / "sandboxes" / record.id
    assert (spec.slot, spec.hostname, spec.environment, spec.image) == (3, record.id, {"A": "b"}, "img")
    assert (spec.limits.memory, spec.storage) == (1 << 30, tmp_path / "tenant")


def test_strict() -> None:
    insist({"memory": Enforcement.FULL})
    insist({})
    with pytest.raises(Unsupported) as caught:
        insist({"memory": Enforcement.FULL, "disk": Enforcement.PARTIAL, "cpus": Enforcement.NONE})
    assert caught.value.reason == "limit_unenforceable"
    assert "cpus (none), disk (partial)" in caught.value.message
