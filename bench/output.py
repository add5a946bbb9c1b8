"""A command's output on its way to a client: how fast, whether whole, at what cost of memory."""

from __future__ import annotations

import hashlib
import random
import time

from bench.accounts import peak_of, reset_peak
from bench.report import Row, at_least, at_most
from bench.run import Run
from bench.samples import Samples
from bench.serving import SANDBOXES
from bench.wire import Wire

MIB = 1 << 20
PEAK_MIB = 64
"""The window of a follower is 16 MiB; the rest is what connections and the allocator hold."""


def measure(run: Run) -> None:
    size = run.rounds(512, 64) * MIB
    control, reader = run.server.connect(), run.server.connect()
    sandbox = control.call("POST", SANDBOXES, {}, expected=201)["id"]
    base = f"{SANDBOXES}/{sandbox}"
    try:
        rates, peaks = [], []
        for _ in range(run.rounds(5, 2)):
            reset_peak(run.server.pid)
            before = peak_of(run.server.pid)
            seconds, received, _ = _stream(
                control, reader, base, f"head -c {size} /dev/zero", keep_digest=False
            )
            if received != size:
                raise RuntimeError(f"{received} bytes arrived of {size}")
            rates.append(size / seconds / 1e6)
            peaks.append((peak_of(run.server.pid) - before) / MIB)
        checked = _check_content(run, control, reader, base, run.rounds(256, 32) * MIB)
    finally:
        control.call("DELETE", base)
        control.close()
        reader.close()
    rows = run.report.rows
    rows.append(
        Row(
            "output to a client",
            Samples("output", "MB/s", tuple(rates), more_is_better=True),
            goal=at_least(200, "at least 200 MB/s"),
        )
    )
    goal = at_most(PEAK_MIB, f"at most {PEAK_MIB} MiB")
    rows.append(Row("... server's memory on top", Samples("output memory", "MiB", tuple(peaks)), goal=goal))
    rows.append(Row("... random bytes, SHA-256 equal", Samples("output checked", "MB/s", (checked,))))


def _stream(
    control: Wire, reader: Wire, base: str, command: str, *, keep_digest: bool
) -> tuple[float, int, str]:
    """Seconds, bytes and digest of what a shell command prints. It begins when its reader is in place."""
    request = {"command": ["sh", "-c", f"read go; exec {command}"], "open_stdin": True, "background": True}
    exec_ = control.call("POST", f"{base}/execs", request, expected=202)["id"]
    parts = reader.stream(reader.place.request("GET", f"{base}/execs/{exec_}/output?encoding=raw"))
    began = time.perf_counter()
    control.ask(control.place.request("POST", f"{base}/execs/{exec_}/stdin?end=true", b"\n")).json(200)
    received, digest = 0, hashlib.sha256()
    for part in parts:
        received += len(part)
        if keep_digest:
            digest.update(part)
    seconds = time.perf_counter() - began
    ended = control.call("GET", f"{base}/execs/{exec_}/wait")
    if ended["exit_code"] != 0 or ended["stdout_bytes"] != received:
        raise RuntimeError(f"{received} bytes arrived of {ended}")
    return seconds, received, digest.hexdigest()


def _check_content(run: Run, control: Wire, reader: Wire, base: str, size: int) -> float:
    """Bytes that compress to nothing and repeat nowhere, put into a file and printed."""
    source = random.Random(7)
    expected = hashlib.sha256()
    path = f"{base}/files?path=random"
    control.socket.sendall(
        run.server.place.request("PUT", path, kind="application/octet-stream").replace(
            b"Content-Length: 0", b"Content-Length: %d" % size
        )
    )
    for _ in range(size // MIB):
        part = source.randbytes(MIB)
        expected.update(part)
        control.socket.sendall(part)
    answer = control.answer()
    if answer.status not in (200, 201):
        raise RuntimeError(f"the upload failed: {answer}")
    seconds, _, digest = _stream(control, reader, base, "cat random", keep_digest=True)
    if digest != expected.hexdigest():
        raise RuntimeError("the output differs from what was printed")
    return size / seconds / 1e6
