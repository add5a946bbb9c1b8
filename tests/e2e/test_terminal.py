"""Terminals, with tmux as the person in front of one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from secrets import token_hex

import pytest

from tests.e2e.command import PROGRAM, Paddock, eventually

pytestmark = [pytest.mark.needs("bwrap", "cc", "tmux"), pytest.mark.timeout(400)]

PROMPT = "host>"


class Screen:
    """A terminal on which a shell of this machine runs."""

    def __init__(self, paddock: Paddock) -> None:
        self._paddock = paddock
        # Of its own: the server of the test before may still be on its way out.
        self._socket = str(paddock.folder / f"tmux-{token_hex(4)}")
        # A shell that reads no files of anybody, with a prompt that nothing else prints.
        self._tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "40", "env PS1='host> ' bash --norc"
        )
        self.shows(PROMPT)

    def _tmux(self, *arguments: str) -> str:
        env = {**self._paddock.env, "TERM": "xterm-256color", "SHELL": "/bin/sh"}
        done = subprocess.run(
            ["tmux", "-S", self._socket, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=env,
            cwd=self._paddock.work,
            timeout=60,
        )
        assert done.returncode == 0, done
        return done.stdout.decode(errors="replace")

    def text(self) -> str:
        return self._tmux("capture-pane", "-p", "-J")

    def shows(self, text: str) -> None:
        eventually(lambda: text in self.text(), f"the screen shows {text!r}: {self.text()}")

    def ends_with(self, text: str) -> None:
        eventually(
            lambda: self.text().rstrip().endswith(text), f"the screen ends with {text!r}:\n{self.text()}"
        )

    def type(self, *lines: str) -> None:
        for line in lines:
            self._tmux("send-keys", "-l", line)
            self._tmux("send-keys", "Enter")

    def press(self, key: str) -> None:
        self._tmux("send-keys", key)

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def screen(paddock: Paddock) -> Iterator[Screen]:
    made = Screen(paddock)
    yield made
    made.close()


def test_an_interactive_run(paddock: Paddock, screen: Screen) -> None:
    screen.type(f"{PROGRAM} run")
    screen.ends_with("$")
    screen.type("stty size; tty")
    screen.shows("40 100")
    screen.shows("/dev/pts/")
    screen.resize(90, 30)
    screen.type("until [ \"$(stty size)\" = '30 90' ]; do sleep 0.1; done; echo re''sized")
    screen.shows("resized")
    # Ctrl-C belongs to the program inside.
    screen.type("sleep 1000")
    screen.shows("sleep 1000")
    screen.press("C-c")
    screen.type("echo code $?")
    screen.shows("code 130")
    screen.type("exit 6")
    screen.ends_with(PROMPT)
    screen.type('echo "left with $?"; stty -a | tr ";" "\\n" | grep -c "isig icanon"')
    screen.shows("left with 6")
    screen.shows("\n1\n")
    assert paddock.json("sandbox", "list", "--all") == []


def test_the_terminal_is_restored_after_a_kill(paddock: Paddock, screen: Screen, box: str) -> None:
    screen.type(f"{PROGRAM} exec -it {box} -- sh -c 'echo in''side; exec sleep 1000'")
    screen.shows("inside")
    exec_id = paddock.json("execs", box)[0]["id"]
    paddock.text("kill", box, exec_id)
    screen.ends_with(PROMPT)
    screen.type('stty -a | tr ";" "\\n" | grep -c "isig icanon"')
    screen.shows("\n1\n")


def test_attach_and_leave_with_a_key(paddock: Paddock, screen: Screen, box: str) -> None:
    exec_id = paddock.text("exec", "-d", "-t", "-i", box, "--", "sh").strip()
    screen.type(f"{PROGRAM} attach {box} {exec_id}")
    screen.ends_with("$")
    screen.type("echo at''tached")
    screen.shows("attached")
    screen.press("C-]")
    screen.ends_with(PROMPT)
    screen.shows("detached; the command goes on")
    assert paddock.json("execs", box)[0]["state"] == "running"
    paddock.text("kill", box, exec_id)


def test_tables_have_colours_and_told_times(paddock: Paddock, screen: Screen, box: str) -> None:
    screen.type(f"{PROGRAM} sandbox list")
    screen.shows(box)
    screen.shows("ago")


def test_delete_all_asks(paddock: Paddock, screen: Screen, box: str) -> None:
    screen.type(f"{PROGRAM} sandbox delete --all")
    screen.shows("[y/N]")
    screen.type("n")
    screen.ends_with(PROMPT)
    assert paddock.json("sandbox", "show", box)["state"] == "running"
    screen.type(f"clear; {PROGRAM} sandbox delete --all")
    screen.shows("[y/N]")
    screen.type("y")
    screen.ends_with(PROMPT)
    assert paddock.json("sandbox", "list", "--all") == []
