"""The filters at work, in a real sandbox."""

from __future__ import annotations

import errno
import platform
import textwrap

import pytest

from paddock.runtimes.seccomp import compiled_filters
from tests.unit.runtimes.conftest import Maker
from tests.unit.runtimes.stub import inside

pytestmark = pytest.mark.needs("root", "bwrap", "cc")

CALLS = """
    import ctypes, errno, sys
    libc = ctypes.CDLL(None, use_errno=True)
    def call(number, *args):
        ctypes.set_errno(0)
        return 0 if libc.syscall(number, *args) >= 0 else ctypes.get_errno()
    print(call(*map(lambda text: int(text, 0), sys.argv[1:])))
"""
X86_64 = platform.machine() == "x86_64"


async def call(maker: Maker, *numbers: int) -> int:
    instance = await maker.create(maker.spec())
    script = maker.data_dir / "sandboxes/one/data/workspace/call.py"
    script.write_text(textwrap.dedent(CALLS))
    script.chmod(0o644)
    done = await inside(instance, f"python3 /workspace/call.py {' '.join(map(str, numbers))}")
    assert done.status == 0, done.output
    return int(done.output)


@pytest.mark.skipif(not X86_64, reason="missing ability: x86_64")
@pytest.mark.parametrize(
    ("name", "numbers", "expected"),
    [
        ("getpid", (39,), 0),
        ("io_uring_setup", (425, 8, 0), errno.ENOSYS),
        ("clone3", (435, 0, 0), errno.ENOSYS),
        ("keyctl", (250, 0, 0), errno.EPERM),
        ("add_key", (248, 0, 0, 0, 0, 0), errno.EPERM),
        ("bpf", (321, 0, 0, 0), errno.EPERM),
        ("perf_event_open", (298, 0, 0, 0, 0, 0), errno.EPERM),
        ("userfaultfd", (323, 0), errno.EPERM),
        ("unshare a user namespace", (272, 0x1000_0000), errno.EPERM),
        ("clone a user namespace", (56, 0x1000_0011, 0, 0, 0, 0), errno.EPERM),
        ("clone a network namespace", (56, 0x4000_0011, 0, 0, 0, 0), errno.EPERM),
        ("mount", (165, 0, 0, 0, 0, 0), errno.EPERM),
        ("packet socket", (41, 17, 3, 0), errno.EAFNOSUPPORT),
        ("vsock socket", (41, 40, 1, 0), errno.EAFNOSUPPORT),
        ("crypto socket", (41, 38, 5, 0), errno.EAFNOSUPPORT),
        ("bluetooth socket", (41, 31, 3, 0), errno.EAFNOSUPPORT),
        ("netfilter netlink socket", (41, 16, 3, 12), errno.EPROTONOSUPPORT),
        ("route netlink socket", (41, 16, 3, 0), 0),
        ("internet socket", (41, 2, 1, 0), 0),
        ("local socket", (41, 1, 1, 0), 0),
        ("terminal injection", (16, 0, 0x5412, 0), errno.EPERM),
        ("terminal injection behind high bits", (16, 0, 0x1_0000_5412, 0), errno.EPERM),
        ("an unknown call", (100_000,), errno.ENOSYS),
    ],
)
async def test_a_call(maker: Maker, name: str, numbers: tuple[int, ...], expected: int) -> None:
    assert await call(maker, *numbers) == expected, name


async def test_ordinary_programs_run(maker: Maker) -> None:
    instance = await maker.create(maker.spec())
    threads = "import threading; t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()"
    assert (await inside(instance, f'python3 -c "{threads}"')).output == "thread\n"
    assert (await inside(instance, "ls / | sort | head -1; sleep 0.01; date +%Y > /dev/null")).status == 0


def test_the_filters_are_compiled_once() -> None:
    assert compiled_filters() is compiled_filters()
