"""What of the host can be seen, read, written or reached. FACTS names canaries that were put there for it."""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct
import tempfile
from typing import Any

from harness import call, facts, libc, main, probe, read, refusal, write

FACTS = facts()


def open_descriptors() -> list[int]:
    listed = [int(name) for name in os.listdir("/proc/self/fd")]
    return [number for number in listed if refusal(lambda number=number: os.fstat(number)) == "allowed"]  # type: ignore[misc]


AT_START = open_descriptors()


# -- files


@probe("top of the tree", outside=True)
def top() -> list[str]:
    return sorted(os.listdir("/"))


HOST_PATHS = (
    "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh", "/etc/machine-id", "/etc/environment",
    "/etc/fstab", "/etc/cron.d", "/etc/ssl/private", "/root", "/var/log",
    "/var/lib", "/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/lock",
    "/run/containerd/containerd.sock", "/run/dbus", "/run/systemd", "/run/user", "/boot", "/opt", "/srv",
    "/media", "/sys", "/sys/fs/cgroup", "/lost+found", "/.dockerenv", "/mnt/user-data/../../root",
)  # fmt: skip


@probe("host paths", outside=True)
def host_paths() -> dict[str, str]:
    return {path: refusal(lambda path=path: os.lstat(path)) for path in HOST_PATHS}  # type: ignore[misc]


@probe("read canaries", outside=True)
def read_canaries() -> dict[str, str]:
    """Files that the host made for us to find, by their paths there."""
    return {
        name: refusal(lambda path=path: read(path))  # type: ignore[misc]
        for name, path in FACTS.get("files", {}).items()
    }


@probe("canaries through somebody's root", outside=True)
def through_roots() -> list[str]:
    """Every way on from the root or folder of a process that can be seen."""
    found = []
    for pid in ["self", "thread-self", *filter(str.isdigit, os.listdir("/proc"))]:
        for way in ("root", "cwd", "root/proc/1/root", "cwd/../../../../..", "root/../.."):
            for path in FACTS.get("files", {}).values():
                if refusal(lambda pid=pid, way=way, path=path: read(f"/proc/{pid}/{way}{path}")) == "allowed":  # type: ignore[misc]
                    found.append(f"{pid}/{way}{path}")
    return found


@probe("writable folders")
def writable() -> list[str]:
    """Every folder of the tree, up to a depth, in which a file can be made."""
    found = []
    for folder, folders, _ in os.walk("/"):
        if folder.startswith("/proc/") or folder.count("/") > 4:
            folders[:] = []
            continue
        name = os.path.join(folder, ".paddock-probe")
        if (
            refusal(lambda name=name: os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)))
            == "allowed"
        ):  # type: ignore[misc]
            os.unlink(name)
            found.append(folder)
            folders[:] = []
    return sorted(found)


@probe("change system files")
def change_system() -> dict[str, str]:
    """Calls that change nothing even where they are allowed: a read-only mount refuses them first."""
    env, mode = "/usr/bin/env", os.stat("/usr/bin/env")
    return {
        "write": refusal(lambda: write(env, b"")),
        "make": refusal(lambda: _make("/usr/bin")),
        "remove": refusal(lambda: os.unlink("/etc/.paddock-probe")),
        "rename": refusal(lambda: os.rename("/etc/hosts", "/etc/hosts")),
        "mode": refusal(lambda: os.chmod(env, stat.S_IMODE(mode.st_mode))),
        "times": refusal(lambda: os.utime(env, ns=(mode.st_atime_ns, mode.st_mtime_ns))),
        "hard link": refusal(lambda: _link(env, "/tmp/env")),
        "socket": refusal(lambda: _make("/run/paddock")),
        "root": refusal(lambda: _make("/")),
        "device folder": refusal(lambda: _make("/dev")),
    }


def _make(folder: str) -> None:
    os.mkdir(f"{folder}/.paddock-probe")
    os.rmdir(f"{folder}/.paddock-probe")


def _link(source: str, target: str) -> None:
    os.link(source, target)
    os.unlink(target)


@probe("change the guest's program")
def change_guest() -> str:
    return refusal(lambda: write("/run/paddock/init", b""))


@probe("change files of one's own")
def change_own() -> list[str]:
    """The same calls, where they are allowed: they are no refusals by mistake."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/file"
        with open(file, "w"):
            pass
        found = {
            refusal(lambda: write(file, b"")),
            refusal(lambda: os.mkdir(f"{folder}/.paddock-probe")),
            refusal(lambda: os.chmod(file, 0o777)),
            refusal(lambda: os.utime(file)),
            refusal(lambda: os.link(file, f"{folder}/linked")),
            refusal(lambda: os.rename(file, f"{folder}/renamed")),
            refusal(lambda: os.unlink(f"{folder}/renamed")),
        }
    return sorted(found)


@probe("files of other owners")
def foreign_files() -> list[str]:
    """What is in one's own folders belongs to oneself: nobody else has been there."""
    found = []
    for start in ("/workspace", "/home/paddock", "/mnt/user-data/outputs", "/dev/shm"):
        for folder, _, files in os.walk(start):
            found += [
                f"{folder}/{name}" for name in files if os.lstat(f"{folder}/{name}").st_uid != os.getuid()
            ]
    return found


# -- /proc and /sys

KERNEL_FILES = (
    "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/domainname", "/proc/sys/kernel/randomize_va_space", "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/drop_caches", "/proc/sys/fs/protected_symlinks", "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/net/ipv4/conf/lo/route_localnet", "/proc/sys/user/max_user_namespaces",
    "/proc/sysrq-trigger", "/proc/1/oom_score_adj", "/proc/mtrr", "/proc/timer_list",
)  # fmt: skip
DEVICES = (
    "/proc/kcore", "/proc/kmsg", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/kvm", "/dev/fuse",
    "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0", "/dev/loop-control", "/dev/net/tun",
    "/dev/vsock", "/dev/vhost-net", "/dev/userfaultfd", "/dev/tty0", "/dev/console", "/proc/slabinfo",
)  # fmt: skip


@probe("kernel files for writing")
def kernel_files() -> dict[str, str]:
    """Nothing is written: whether it could be is told by the opening."""
    return {
        path: refusal(lambda path=path: os.close(os.open(path, os.O_WRONLY)))  # type: ignore[misc]
        for path in KERNEL_FILES
    }


@probe("devices for reading")
def device_files() -> dict[str, str]:
    return {
        path: refusal(lambda path=path: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK)))  # type: ignore[misc]
        for path in DEVICES
    }


@probe("namespace files")
def namespace_files() -> dict[str, str]:
    """Everybody may open these; what counts is the writing."""
    return {
        "uid_map": refusal(lambda: write("/proc/self/uid_map", b"0 0 1\n")),
        "gid_map": refusal(lambda: write("/proc/self/gid_map", b"0 0 1\n")),
        "setgroups": refusal(lambda: write("/proc/self/setgroups", b"allow")),
        "ns_last_pid": refusal(lambda: write("/proc/sys/kernel/ns_last_pid", b"100")),
    }


@probe("keys of the host")
def keys() -> str:
    return read("/proc/keys", 65536).decode() if os.path.exists("/proc/keys") else ""


@probe("cgroup files", outside=True)
def cgroup_files() -> list[str]:
    """release_agent, notify_on_release and everything else: there is no cgroup file system at all."""
    with open("/proc/self/mountinfo") as mounts:
        kinds = {line.split(" - ")[1].split()[0] for line in mounts}
    return sorted(
        kind for kind in kinds if kind in ("cgroup", "cgroup2", "sysfs", "debugfs", "tracefs", "bpf")
    )


@probe("own cgroup", outside=True)
def own_cgroup() -> list[str]:
    """The path of one's cgroup, as far as one may know it."""
    with open("/proc/self/cgroup") as file:
        return sorted({line.rstrip("\n").split(":", 2)[2] for line in file})


@probe("mount sources")
def mount_sources() -> list[str]:
    """Folders of the host that the mount table betrays."""
    with open("/proc/self/mountinfo") as mounts:
        text = mounts.read()
    return [name for name, path in FACTS.get("files", {}).items() if os.path.dirname(path) in text]


# -- processes


@probe("processes", outside=True)
def processes() -> list[str]:
    """The names of those that can be seen, but for ourselves."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.add(read(f"/proc/{pid}/comm").decode().strip())
        except OSError:
            continue
    return sorted(found - {"python3", "python", os.path.basename(os.path.realpath("/proc/self/exe"))[:15]})


@probe("see the host's canary process", outside=True)
def canary_process() -> bool:
    wanted = FACTS.get("word", "?").encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if wanted in read(f"/proc/{pid}/cmdline").replace(b"\0", b" ") and int(pid) != os.getpid():
                return True
        except OSError:
            continue
    return False


@probe("kill the host's canary process", outside=True)
def kill_canary() -> str:
    return refusal(lambda: os.kill(FACTS.get("pid", 0) or 99999999, 0))


@probe("environment", outside=True)
def environment() -> list[str]:
    """Names of variables, beyond those every command gets."""
    return sorted(name for name in os.environ if name != "FACTS")


@probe("environment of visible processes", outside=True)
def environments() -> bool:
    wanted = FACTS.get("word", "?").encode()
    found = b""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if refusal(lambda pid=pid: read(f"/proc/{pid}/environ")) == "allowed":  # type: ignore[misc]
            variables = read(f"/proc/{pid}/environ", 1 << 17).split(b"\0")
            found += b"".join(one for one in variables if not one.startswith(b"FACTS="))
    return wanted in found


@probe("inherited descriptors")
def descriptors() -> list[int]:
    return AT_START


# -- rights


@probe("capabilities", outside=True)
def capabilities() -> dict[str, str]:
    with open("/proc/self/status") as status:
        return {
            line.split(":")[0]: line.split()[1]
            for line in status
            if line.startswith(("Cap", "NoNewPrivs", "Seccomp:"))
        }


@probe("identity")
def identity() -> dict[str, Any]:
    return {
        "ids": [*os.getresuid(), *os.getresgid()],
        "groups": os.getgroups(),
        "root": refusal(lambda: os.setuid(0)),
        "other": refusal(lambda: os.setuid(1)),
        "groups of others": refusal(lambda: os.setgroups([0])),
        "map": sum(1 for _ in open("/proc/self/uid_map")),
        "one user": open("/proc/self/uid_map").read().split()[2],
        "session": os.getsid(0) != 1,
    }


@probe("ambient and inherited rights")
def ambient() -> dict[str, str]:
    """Raise an ambient capability; drop the bits that keep root from regaining its own."""
    return {
        "ambient": refusal(lambda: call("prctl", 47, 2, 21, 0, 0)),
        "securebits": refusal(lambda: call("prctl", 28, 1, 0, 0, 0)),
        "capset": refusal(
            lambda: call("capset", struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[1 << 21] * 6))
        ),
    }


# -- network and inter-process communication


@probe("interfaces", outside=True)
def interfaces() -> list[str]:
    return sorted(name for _, name in socket.if_nameindex())


@probe("reach the host's loopback port", outside=True)
def loopback() -> dict[str, str]:
    found = {}
    for address in ("127.0.0.1", "::1", "0.0.0.0"):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as sock:
            sock.settimeout(5)
            found[address] = refusal(
                lambda sock=sock, address=address: sock.connect((address, FACTS["port"]))
            )  # type: ignore[misc]
    return found


@probe("reach the internet", outside=True)
def internet() -> str:
    """No route, told at once: nothing is sent anywhere."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return refusal(lambda: sock.connect(("192.0.2.1", 53)))


@probe("reach the host's abstract socket", outside=True)
def abstract() -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        return refusal(lambda: sock.connect("\0" + FACTS["word"]))


@probe("abstract sockets", outside=True)
def abstract_list() -> list[str]:
    with open("/proc/net/unix") as file:
        return [line.split()[-1] for line in file if line.split()[-1].startswith("@")]


@probe("System V shared memory", outside=True)
def system_v() -> str:
    libc.shmget.restype = ctypes.c_int
    return refusal(lambda: call("shmget", FACTS["key"], 0, 0))


@probe("POSIX message queue", outside=True)
def message_queue() -> str:
    name = b"/" + FACTS["word"].encode()
    return refusal(lambda: os.close(call("mq_open", name, os.O_RDONLY)))


@probe("POSIX shared memory", outside=True)
def shared_memory() -> str:
    return refusal(lambda: read(f"/dev/shm/{FACTS['word']}"))


main()
