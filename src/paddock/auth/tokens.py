"""API tokens: who calls, and what they may do.

A secret is 256 random bits, so that one plain hash of it is as good as a slow one. The store holds only
hashes. All tokens are in memory too: checking a request asks no database. The lookup is by hash, which nobody
can steer towards a known one, so its timing tells nothing.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from sqlalchemy import bindparam, insert, select, update

from paddock.errors import Denied, Invalid, NotFound, Unauthenticated
from paddock.store import Store, write_private
from paddock.store.schema import tokens

SECRET_PREFIX = "pdk_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@ -]{0,63}")
_SEEN_EVERY_SECONDS = 60.0

_INSERT = insert(tokens)
_SEEN = update(tokens).where(tokens.c.id == bindparam("token")).values(last_used_at=bindparam("at"))


class Role(Enum):
    """Ordered: a role may do whatever a lower one may."""

    OBSERVER = "observer"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    def allows(self, needed: Role) -> bool:
        return self.rank >= needed.rank

    def __lt__(self, other: Role) -> bool:
        return self.rank < other.rank

    def __le__(self, other: Role) -> bool:
        return self.rank <= other.rank

    @classmethod
    def parse(cls, text: str) -> Role:
        try:
            return cls(text.lower())
        except ValueError:
            known = ", ".join(role.value for role in cls)
            raise Invalid(f"no role {text!r}", reason="unknown_role", hint=f"roles: {known}") from None


_RANKS = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever makes a request."""

    name: str
    role: Role
    token_id: str | None = None

    def require(self, needed: Role) -> None:
        if not self.role.allows(needed):
            raise Denied(
                f"this needs the role {needed.value}, and {self.name} is {self.role.value}",
                reason="role",
                hint=f"use a token with the role {needed.value}",
            )


ANYONE = Principal("anyone", Role.ADMIN)
"""Every caller of a server that runs without authentication."""


@dataclass(frozen=True, slots=True)
class Token:
    id: str
    name: str
    role: Role
    created_at: float
    last_used_at: float | None = None
    expires_at: float | None = None
    revoked_at: float | None = None

    def is_live(self, now: float) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Tokens:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_hash: dict[str, Token] = {}

    @classmethod
    async def open(cls, store: Store) -> Tokens:
        self = cls(store)
        for row in await store.fetch_all(select(tokens)):
            self._by_hash[row["hash"]] = _token(dict(row))
        return self

    async def create(self, name: str, role: Role, expires_at: float | None = None) -> tuple[Token, str]:
        """The token and its secret, which can be had only now."""
        secret = _new_secret()
        return await self._add(name, role, expires_at, secret), secret

    def verify(self, secret: str) -> Principal:
        wanted = _hash(secret)
        token = self._by_hash.get(wanted)
        if token is None:
            raise Unauthenticated("no such token", reason="token_unknown", hint="sign in with a valid token")
        now = time.time()
        if token.revoked_at is not None:
            raise Unauthenticated("the token was revoked", reason="token_revoked", hint="use another one")
        if not token.is_live(now):
            raise Unauthenticated("the token has expired", reason="token_expired", hint="use another one")
        if token.last_used_at is None or now - token.last_used_at > _SEEN_EVERY_SECONDS:
            self._by_hash[wanted] = replace(token, last_used_at=now)
            self._store.write_later((_SEEN, {"token": token.id, "at": now}))
        return Principal(token.name, token.role, token.id)

    def list(self) -> list[Token]:
        return sorted(self._by_hash.values(), key=lambda token: (token.created_at, token.id))

    async def revoke(self, name_or_id: str) -> Token:
        """Refused from now on, and its name is free again."""
        key = self._find(name_or_id)
        token, now = self._by_hash[key], time.time()
        revoked = replace(token, revoked_at=now, name=f"{token.name.split(' (')[0]} (revoked {token.id})")
        # Refused even if the store then fails: whoever asked sees the error, and may revoke it by id again.
        self._by_hash[key] = revoked
        await self._store.write(
            update(tokens).where(tokens.c.id == token.id).values(revoked_at=now, name=revoked.name)
        )
        return revoked

    def _find(self, name_or_id: str) -> str:
        for key, token in self._by_hash.items():
            if name_or_id == token.id or (token.revoked_at is None and name_or_id == token.name):
                return key
        raise NotFound(f"no token {name_or_id!r}", hint="see the list of tokens")

    async def ensure_admin(self, path: Path) -> str | None:
        """Make the first admin token and write its secret to `path`; None when there is an admin already."""
        now = time.time()
        if any(token.role is Role.ADMIN and token.is_live(now) for token in self._by_hash.values()):
            return None
        # The file first: after a crash in between the next start replaces it, and nobody is locked out.
        secret = _new_secret()
        write_private(path, secret + "\n")
        taken = {token.name for token in self._by_hash.values()}
        name = next(n for n in ("admin", f"admin-{secrets.token_hex(4)}") if n not in taken)
        await self._add(name, Role.ADMIN, None, secret)
        return secret

    async def _add(self, name: str, role: Role, expires_at: float | None, secret: str) -> Token:
        if not _NAME.fullmatch(name):
            raise Invalid(
                f"{name!r} is no name for a token",
                reason="bad_name",
                hint="up to 64 letters, digits, spaces and . _ @ -, beginning with a letter or digit",
            )
        token = Token(f"tok_{secrets.token_hex(8)}", name, role, time.time(), expires_at=expires_at)
        key = _hash(secret)
        row = {
            "id": token.id,
            "name": name,
            "role": role.value,
            "hash": key,
            "created_at": token.created_at,
            "expires_at": expires_at,
        }
        await self._store.write((_INSERT, row))
        self._by_hash[key] = token
        return token


def _new_secret() -> str:
    return SECRET_PREFIX + secrets.token_urlsafe(32)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def _token(row: dict[str, Any]) -> Token:
    row.pop("hash")
    return Token(**{**row, "role": Role(row["role"])})
