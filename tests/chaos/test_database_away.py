"""PostgreSQL as the store, gone and back while commands run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.abilities import postgres_bin
from tests.chaos.stage import Box, Stage, until
from tests.chaos.test_killed_under_execs import assert_counted, count_in_three_ways
from tests.databases import Postgres, _die_with_the_tests, _owner, _running, _wait_until_ready

pytestmark = [pytest.mark.needs("bwrap", "cc", "postgres"), pytest.mark.leaks_ok]


class Database:
    """A cluster of one's own: others must not lose theirs."""

    def __init__(self, folder: Path) -> None:
        programs = postgres_bin()
        assert programs is not None
        self._programs, self._folder, self._user = programs, folder, _owner()
        self._server: subprocess.Popen[bytes] | None = None
        self.postgres = Postgres(folder, self._user.pw_name)
        with _running(programs, folder, self._user):
            self.postgres.administer("CREATE DATABASE paddock")

    def start(self) -> None:
        settings = ("listen_addresses=", f"unix_socket_directories={self._folder}", "fsync=off")
        root = os.geteuid() == 0
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [
                    self._programs / "postgres",
                    "-D",
                    self._folder / "data",
                    *(word for setting in settings for word in ("-c", setting)),
                ],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_the_tests,
                user=self._user.pw_uid if root else None,
                group=self._user.pw_gid if root else None,
            )
        _wait_until_ready(self.postgres, self._server)

    def stop(self) -> None:
        """At once, as a crash would: `pg_ctl stop -m immediate`."""
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait(60)
            self._server = None


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    folder = Path(tempfile.mkdtemp(prefix="paddock-chaos-postgres-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        made = Database(folder)
        stack.callback(made.stop)
        made.start()
        yield made


@pytest.fixture(scope="module")
def house(database: Database) -> Iterator[Stage]:
    made = Stage(database_url=database.postgres.url("paddock"))
    yield made
    made.close()


@pytest_asyncio.fixture
async def away(database: Database) -> AsyncIterator[Database]:
    yield database
    if database._server is None:
        database.start()


async def refused(box: Box, method: str, path: str, body: dict[str, object] | None = None) -> None:
    answer = await box.stage.call(method, path, json=body)
    assert (answer.status_code, answer.json()["reason"]) == (503, "store_away"), (method, path, answer.text)


async def test_commands_run_on_without_the_database(away: Database, stage: Stage, box: Box) -> None:
    followers, foreground = await count_in_three_ways(box)
    following = [asyncio.ensure_future(one.follow()) for one in followers]
    away.stop()
    await refused(box, "POST", "/sandboxes", {})
    await refused(box, "POST", f"/sandboxes/{box.id}/execs", {"command": ["true"], "background": True})
    await refused(box, "PATCH", f"/sandboxes/{box.id}", {"labels": {"a": "b"}})
    await refused(box, "DELETE", f"/sandboxes/{box.id}")
    assert await stage.sandboxes() == {box.id: "running"}
    quick = await box.run("sh", "-c", "echo without; exit 4")
    assert (quick["exit_code"], quick["stdout"]) == (4, "without\n")
    await asyncio.gather(*following)
    assert_counted(followers)
    assert (await foreground)["exit_code"] == 7
    away.start()

    async def back() -> bool:
        answer = await stage.call("POST", "/sandboxes", json={})
        assert answer.status_code in (201, 503), answer.text
        return answer.status_code == 201

    await until(back, "sandboxes can be made again")
    for exec_id, code in ((quick["id"], 4), *((one.exec_id, 7) for one in followers)):
        assert (await box.ended(exec_id))["exit_code"] == code
    await stage.restart()
    for exec_id, code in ((quick["id"], 4), *((one.exec_id, 7) for one in followers)):
        assert (await box.ended(exec_id))["exit_code"] == code
    assert await box.output(quick["id"]) == b"without\n"


async def test_a_server_without_its_database_says_so_and_loses_nothing(
    away: Database, stage: Stage, box: Box
) -> None:
    exec_id = await box.start("sh", "-c", "echo begun; sleep 2; echo done; exit 7")
    away.stop()
    stage.kill()
    server = stage.launch()
    assert await asyncio.to_thread(server.popen.wait, 60) != 0
    assert "the database is away" in stage.log
    away.start()
    await stage.up()
    assert (await box.ended(exec_id))["exit_code"] == 7
    assert await box.output(exec_id) == b"begun\ndone\n"


async def test_a_database_that_comes_and_goes(away: Database, stage: Stage, box: Box) -> None:
    """Whatever was answered with success is there afterwards."""
    told: list[str] = []
    for _ in range(3):
        starting = [
            asyncio.ensure_future(
                box.call("POST", "/execs", json={"command": ["sh", "-c", "exit 9"], "background": kind})
            )
            for kind in (True, False) * 4
        ]
        away.stop()
        for answer in await asyncio.gather(*starting):
            assert answer.status_code in (200, 202, 503), answer.text
            if answer.status_code != 503:
                told.append(answer.json()["id"])
        away.start()
    assert told
    await stage.restart()
    for exec_id in told:
        assert (await box.ended(exec_id))["exit_code"] == 9
