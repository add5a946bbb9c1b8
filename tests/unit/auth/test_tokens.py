from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
from sqlalchemy import select

from paddock.auth import ANYONE, Principal, Role, Tokens
from paddock.errors import Conflict, Denied, Invalid, NotFound, Unauthenticated, Unavailable
from paddock.store import Store
from paddock.store.schema import tokens as table


@pytest.fixture
async def tokens(store: Store) -> Tokens:
    return await Tokens.open(store)


def refusal(tokens: Tokens, secret: str) -> str:
    with pytest.raises(Unauthenticated) as caught:
        tokens.verify(secret)
    return caught.value.reason


async def test_a_secret_names_its_principal_also_after_a_restart(store: Store, tokens: Tokens) -> None:
    token, secret = await tokens.create("robot", Role.OPERATOR)
    assert secret.startswith("pdk_")
    assert len(secret) >= 40
    expected = Principal("robot", Role.OPERATOR, token.id)
    assert tokens.verify(secret) == expected
    assert (await Tokens.open(store)).verify(secret) == expected


async def test_the_store_never_sees_a_secret(store: Store, tokens: Tokens) -> None:
    _, secret = await tokens.create("robot", Role.ADMIN)
    rows = await store.fetch_all(select(table))
    assert len(rows) == 1
    assert secret.removeprefix("pdk_") not in str(dict(rows[0]))


async def test_wrong_secrets(tokens: Tokens) -> None:
    _, secret = await tokens.create("robot", Role.ADMIN)
    for wrong in ("", "pdk_", secret[:-1], secret + "x", secret.upper(), "\udcff", "ü\0"):
        assert refusal(tokens, wrong) == "token_unknown"


async def test_an_expired_token_is_refused_at_once(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    _, secret = await tokens.create("robot", Role.ADMIN, expires_at=now + 1000)
    tokens.verify(secret)
    monkeypatch.setattr(time, "time", lambda: now + 1000)
    assert refusal(tokens, secret) == "token_expired"


async def test_a_revoked_token_is_refused_at_once_and_its_name_is_free(store: Store, tokens: Tokens) -> None:
    first, secret = await tokens.create("robot", Role.ADMIN)
    await tokens.revoke("robot")
    assert refusal(tokens, secret) == "token_revoked"
    second, other = await tokens.create("robot", Role.ADMIN)
    assert tokens.verify(other).token_id == second.id != first.id
    assert refusal(await Tokens.open(store), secret) == "token_revoked"
    with pytest.raises(NotFound):
        await tokens.revoke("nobody")


async def test_revoking_by_id_can_be_repeated(tokens: Tokens) -> None:
    token, _ = await tokens.create("robot", Role.ADMIN)
    once = await tokens.revoke(token.id)
    twice = await tokens.revoke(token.id)
    assert once.name == twice.name
    assert [t.id for t in tokens.list()] == [token.id]


async def test_a_revocation_holds_even_when_the_store_fails(sqlite_store: Store) -> None:
    tokens = await Tokens.open(sqlite_store)
    _, secret = await tokens.create("robot", Role.ADMIN)
    await sqlite_store.close()
    with pytest.raises(Unavailable):
        await tokens.revoke("robot")
    assert refusal(tokens, secret) == "token_revoked"


async def test_names_are_unique_and_sane(tokens: Tokens) -> None:
    await tokens.create("robot", Role.OBSERVER)
    with pytest.raises(Conflict):
        await tokens.create("robot", Role.OBSERVER)
    for bad in ("", " x", "a\nb", "x" * 65, "a/b", "\udcff"):
        with pytest.raises(Invalid):
            await tokens.create(bad, Role.OBSERVER)
    assert [token.name for token in tokens.list()] == ["robot"]


async def test_use_is_remembered(store: Store, tokens: Tokens) -> None:
    _, secret = await tokens.create("robot", Role.OBSERVER)
    assert tokens.list()[0].last_used_at is None
    tokens.verify(secret)
    seen = tokens.list()[0].last_used_at
    tokens.verify(secret)
    assert tokens.list()[0].last_used_at == seen
    await store.flush()
    assert (await Tokens.open(store)).list()[0].last_used_at == seen


async def test_the_first_admin_is_made_once(store: Store, tokens: Tokens, tmp_path: Path) -> None:
    path = tmp_path / "admin-token"
    secret = await tokens.ensure_admin(path)
    assert secret is not None
    assert path.read_text().strip() == secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert tokens.verify(secret).role is Role.ADMIN
    assert await tokens.ensure_admin(path) is None
    assert await (await Tokens.open(store)).ensure_admin(path) is None
    assert path.read_text().strip() == secret


async def test_a_file_left_by_a_crash_is_replaced(tokens: Tokens, tmp_path: Path) -> None:
    path = tmp_path / "admin-token"
    path.write_text("pdk_never-stored")
    secret = await tokens.ensure_admin(path)
    assert secret is not None
    assert tokens.verify(path.read_text().strip()).name == "admin"


async def test_no_admin_is_made_that_cannot_be_told(tokens: Tokens, tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        await tokens.ensure_admin(tmp_path / "none" / "admin-token")
    assert tokens.list() == []


async def test_when_the_admin_was_revoked_another_is_made(tokens: Tokens, tmp_path: Path) -> None:
    path = tmp_path / "admin-token"
    await tokens.ensure_admin(path)
    await tokens.create("admin-2", Role.OBSERVER)
    await tokens.revoke("admin")
    secret = await tokens.ensure_admin(path)
    assert secret is not None
    assert tokens.verify(secret).role is Role.ADMIN


def test_roles_are_ordered() -> None:
    assert sorted(Role, reverse=True) == [Role.ADMIN, Role.OPERATOR, Role.OBSERVER]
    assert Role.ADMIN.allows(Role.OBSERVER)
    assert Role.OPERATOR >= Role.OPERATOR
    assert not Role.OBSERVER.allows(Role.OPERATOR)
    assert Role.parse("Operator") is Role.OPERATOR
    with pytest.raises(Invalid, match="boss"):
        Role.parse("boss")


def test_a_principal_without_the_role_is_denied() -> None:
    Principal("x", Role.OPERATOR).require(Role.OBSERVER)
    ANYONE.require(Role.ADMIN)
    with pytest.raises(Denied) as caught:
        Principal("x", Role.OBSERVER).require(Role.OPERATOR)
    assert caught.value.reason == "role"
