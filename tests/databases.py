"""Databases for tests: `database_url` gives each test a fresh one, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from paddock.store import Store
from tests.abilities import postgres_bin

_PR_SET_PDEATHSIG = 1
_START_SECONDS = 60


@dataclass(frozen=True)
class Postgres:
    """A cluster of its own, reachable through a socket in its folder and nowhere else."""

    folder: Path
    user: str

    def url(self, database: str) -> str:
        return f"postgresql://{self.user}@/{database}?host={self.folder}"

    def administer(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())


def _owner() -> pwd.struct_passwd:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _die_with_the_tests() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


@contextlib.contextmanager
def _running(programs: Path, folder: Path, owner: pwd.struct_passwd) -> Iterator[Postgres]:
    identity: dict[str, int] = {}
    if os.geteuid() == 0:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        identity = {"user": owner.pw_uid, "group": owner.pw_gid}
    data = folder / "data"
    subprocess.run(
        [
            programs / "initdb",
            "-D",
            data,
            "-A",
            "trust",
            "-U",
            owner.pw_name,
            "-E",
            "UTF8",
            "--no-sync",
            "--no-locale",
        ],
        check=True,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        **identity,
    )
    options = ["listen_addresses=", f"unix_socket_directories={folder}", "fsync=off", "autovacuum=off"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, *(word for option in options for word in ("-c", option))],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_die_with_the_tests,
            **identity,
        )
    try:
        postgres = Postgres(folder, owner.pw_name)
        _wait_until_ready(postgres, server)
        yield postgres
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)


def _wait_until_ready(postgres: Postgres, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            return postgres.administer("SELECT 1")
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail((postgres.folder / "log").read_text(errors="replace"), pytrace=False)
            time.sleep(0.05)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    programs = postgres_bin()
    if programs is None:
        pytest.skip("missing ability: postgres")
    # Not below pytest's own folder, which other users may not enter.
    folder = Path(tempfile.mkdtemp(prefix="paddock-postgres-"))
    try:
        with _running(programs, folder, _owner()) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(
    scope="session", params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres"))]
)
def backend(request: pytest.FixtureRequest) -> Postgres | None:
    if request.param == "sqlite":
        return None
    server: Postgres = request.getfixturevalue("postgres")
    return server


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    with _fresh_database(postgres) as url:
        yield url


@contextlib.contextmanager
def _fresh_database(postgres: Postgres) -> Iterator[str]:
    name = f"test_{uuid4().hex}"
    postgres.administer(f"CREATE DATABASE {name}")
    try:
        yield postgres.url(name)
    finally:
        postgres.administer(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'paddock.db'}"


@pytest.fixture
def database_url(backend: Postgres | None, sqlite_url: str) -> Iterator[str]:
    if backend is None:
        yield sqlite_url
    else:
        with _fresh_database(backend) as url:
            yield url


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    """On every database in turn."""
    store = await Store.open(database_url)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def sqlite_store(sqlite_url: str) -> AsyncIterator[Store]:
    store = await Store.open(sqlite_url)
    try:
        yield store
    finally:
        await store.close()
