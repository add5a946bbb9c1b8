from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli import launch
from paddock.cli.connect import Local
from paddock.errors import PaddockError, Unavailable


def test_a_process_that_is_no_server_is_not_ended() -> None:
    other = subprocess.Popen(["sleep", "1000"])
    try:
        with pytest.raises(PaddockError) as caught:
            launch.stop(Local("http://127.0.0.1:1", other.pid))
        assert caught.value.reason == "not_paddock"
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_server_is_asked_to_end_and_waited_for() -> None:
    # Named like one.
    code = "import time; print('ready', flush=True); time.sleep(1000)"
    server = subprocess.Popen([sys.executable, "-c", code, "paddock"], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        launch.stop(Local("http://127.0.0.1:1", server.pid))
        assert server.wait(20) == -signal.SIGTERM
    finally:
        server.kill()
        server.communicate()


def test_a_server_that_does_not_start_tells_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "GIVEN_WAY_SECONDS", 0.0)
    monkeypatch.setenv("PADDOCK_DEFAULT_RUNTIME", "nonsense")
    with pytest.raises(Unavailable) as caught:
        launch.start_detached(tmp_path / "data", ["--port", "0"])
    assert "nonsense" in caught.value.message
    assert "server.log" in (caught.value.hint or "")


def test_a_folder_that_cannot_be_made_is_a_useful_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable) as caught:
        launch.start_detached(tmp_path / "file" / "data")
    assert caught.value.reason == "data_dir"


def test_the_log_is_private(tmp_path: Path) -> None:
    log = launch._log_file(tmp_path / "data")
    assert os.stat(log.parent).st_mode & 0o777 == 0o700
    assert os.stat(tmp_path / "data").st_mode & 0o777 == 0o711
