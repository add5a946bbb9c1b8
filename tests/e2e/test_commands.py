from __future__ import annotations

import json
import os

import pytest

from tests.e2e.command import Paddock

pytestmark = [pytest.mark.needs("bwrap", "cc"), pytest.mark.timeout(400)]


def test_a_sandbox_from_start_to_end(paddock: Paddock) -> None:
    flags = ["--name", "life", "--label", "a=b", "--env", "X=1", "--memory", "512MiB", "--ttl", "1h"]
    box = paddock.text("sandbox", "create", *flags, "--metadata", '{"k": [1]}').strip()
    shown = paddock.json("sandbox", "show", "life")
    assert (shown["id"], shown["labels"], shown["metadata"]) == (box, {"a": "b"}, {"k": [1]})
    assert shown["limits"]["memory"] == 512 << 20
    assert paddock.text("exec", "life", "--", "sh", "-c", "echo $X") == "1\n"
    assert paddock.text("sandbox", "list", "-q", "--label", "a=b") == f"{box}\n"
    assert paddock.text("sandbox", "list", "-q", "--label", "a=c") == ""
    assert "512MiB" in paddock.text("sandbox", "show", box)
    paddock.text("sandbox", "update", "life", "--name", "other", "--label", "c=d", "--ttl", "none")
    shown = paddock.json("sandbox", "show", "other")
    assert (shown["labels"], shown["ttl"]) == ({"c": "d"}, None)
    assert paddock.json("sandbox", "stats", "other")["execs_running"] == 0
    paddock.text("sandbox", "stop", "other")
    assert box not in paddock.text("sandbox", "list", "-q")
    assert box in paddock.text("sandbox", "list", "-q", "--all")
    assert box in paddock.text("sandbox", "list", "-q", "--state", "stopped")
    assert paddock.run("exec", "other", "--", "true").returncode == 1
    assert paddock.text("sandbox", "delete", "other") == "other\n"
    assert paddock.run("sandbox", "show", box).returncode == 3


@pytest.mark.needs("cgroup-freezer")
def test_pause_and_resume(paddock: Paddock, box: str) -> None:
    paddock.text("sandbox", "pause", box)
    assert paddock.json("sandbox", "show", box)["state"] == "paused"
    paddock.text("sandbox", "resume", box)
    assert paddock.text("exec", box, "echo", "awake") == "awake\n"


def test_several_at_once_and_what_fails_among_them(paddock: Paddock) -> None:
    boxes = [paddock.text("sandbox", "create").strip() for _ in range(2)]
    done = paddock.run("sandbox", "delete", boxes[0], "missing", boxes[1])
    assert done.returncode == 3
    assert done.stdout.decode().split() == boxes
    assert b"missing" in done.stderr


def test_delete_all_wants_a_yes(paddock: Paddock, box: str) -> None:
    done = paddock.run("sandbox", "delete", "--all")
    assert done.returncode == 2
    assert b"--yes" in done.stderr
    assert paddock.json("sandbox", "show", box)["state"] == "running"


def test_a_name_is_taken_once(paddock: Paddock) -> None:
    paddock.text("sandbox", "create", "--name", "twin")
    done = paddock.run("sandbox", "create", "--name", "twin", "--json")
    assert done.returncode == 1
    assert json.loads(done.stderr)["reason"] == "name_taken"
    paddock.text("sandbox", "delete", "twin")


def test_what_the_server_refuses_is_a_usage_error(paddock: Paddock) -> None:
    done = paddock.run("sandbox", "create", "--name", "Not A Name")
    assert done.returncode == 2
    assert b"name" in done.stderr


def test_files(paddock: Paddock, box: str) -> None:
    data = os.urandom(1 << 20)
    paddock.text("files", "put", box, "dir/data.bin", "--mode", "600", input=data)
    assert paddock.run("files", "cat", box, "dir/data.bin").stdout == data
    stat = paddock.json("files", "stat", box, "dir/data.bin")
    assert (stat["size"], stat["mode"], stat["type"]) == (1 << 20, "0600", "file")
    paddock.text("files", "mkdir", box, "a/b", "--parents")
    paddock.text("files", "mv", box, "dir/data.bin", "a/b/moved")
    assert paddock.text("files", "ls", box, "a/b") == "moved\n"
    assert "0600" in paddock.text("files", "ls", box, "--long", "a/b")
    assert paddock.run("files", "rm", box, "a").returncode == 1
    paddock.text("files", "rm", "-r", box, "a")
    assert paddock.run("files", "cat", box, "a/b/moved").returncode == 3
    assert paddock.run("files", "put", box, "x", "/no/such/file").returncode == 1


def test_names_with_escapes_do_not_reach_the_terminal(paddock: Paddock, box: str) -> None:
    paddock.text("exec", box, "--", "sh", "-c", "touch \"$(printf 'a\\033[31mb')\"")
    assert paddock.text("files", "ls", box) == "a[31mb\n"


def test_watching_files(paddock: Paddock, box: str) -> None:
    process = paddock.start("files", "watch", box, "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["event"] == "ready"
    paddock.text("files", "put", box, "seen", input=b"x")
    seen = [json.loads(process.stdout.readline())]
    while "seen" not in json.dumps(seen[-1]):
        seen.append(json.loads(process.stdout.readline()))
    process.terminate()
    process.communicate(timeout=60)


def test_events(paddock: Paddock, box: str) -> None:
    paddock.text("exec", box, "--", "true")
    lines = paddock.text("events", "--sandbox", box, "--json").splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds[0] == "sandbox.created"
    assert "exec.finished" in kinds
    first = json.loads(lines[0])["id"]
    later = paddock.text("events", "--sandbox", box, "--json", "--after", str(first)).splitlines()
    assert later[: len(lines) - 1] == lines[1:]
    only = paddock.text("events", "--sandbox", box, "--kind", "exec.started")
    assert len(only.splitlines()) == 1


def test_following_events(paddock: Paddock) -> None:
    process = paddock.start("events", "--follow", "--after", "0", "--json", "--kind", "sandbox.created")
    assert process.stdout is not None
    box = paddock.text("sandbox", "create").strip()
    while json.loads(process.stdout.readline())["sandbox_id"] != box:
        pass
    process.terminate()
    process.communicate(timeout=60)
    paddock.text("sandbox", "delete", box)


def test_tokens_and_what_they_may(paddock: Paddock) -> None:
    secret = paddock.text("token", "create", "watcher", "--role", "observer").strip()
    assert "watcher" in paddock.text("token", "list")
    seen = paddock.run("sandbox", "list", env={"PADDOCK_TOKEN": secret})
    assert seen.returncode == 0
    refused = paddock.run("sandbox", "create", "--json", env={"PADDOCK_TOKEN": secret})
    assert refused.returncode == 4
    assert "hint" in json.loads(refused.stderr)
    paddock.text("token", "revoke", "watcher")
    assert paddock.run("sandbox", "list", env={"PADDOCK_TOKEN": secret}).returncode == 4
    actions = {line["action"] for line in paddock.json("audit")}
    assert {"token.create", "token.revoke"} <= actions


def test_another_server_by_its_address(paddock: Paddock) -> None:
    paddock.text("up", "--detach")
    url = json.loads((paddock.data / "server.json").read_text())["url"]
    token = (paddock.data / "admin-token").read_text().strip()
    elsewhere = {"PADDOCK_DATA_DIR": str(paddock.folder / "elsewhere"), "PADDOCK_URL": url}
    assert paddock.run("sandbox", "list", env=elsewhere).returncode == 4
    assert paddock.run("sandbox", "list", env=elsewhere | {"PADDOCK_TOKEN": token}).returncode == 0
    assert not (paddock.folder / "elsewhere").exists()


def test_doctor_needs_no_server(paddock: Paddock) -> None:
    done = paddock.run(
        "doctor", "--json", env={"PADDOCK_DATA_DIR": str(paddock.folder / "nowhere")}, timeout=180
    )
    told = json.loads(done.stdout)
    assert done.returncode == (0 if told["healthy"] else 1)
    assert told["checks"][0]["name"] == "bubblewrap"


def test_completion_offers_commands(paddock: Paddock) -> None:
    asked = {"_PADDOCK_COMPLETE": "complete_bash", "COMP_WORDS": "paddock sand", "COMP_CWORD": "1"}
    done = paddock.run(env=asked)
    assert done.stdout.split() == [b"sandbox"]


def test_no_color_and_a_narrow_terminal_do_no_harm(paddock: Paddock, box: str) -> None:
    done = paddock.run("sandbox", "list", env={"NO_COLOR": "1", "COLUMNS": "10", "TERM": "dumb"})
    assert box.encode() in done.stdout
