"""What a sandbox sees of the host: its programs and libraries, and a handful of harmless files of /etc.

The files of /etc are copied, with generated ones beside them, into one folder of the data folder. One mount
then shows them all, which keeps a create quick, and nothing added to the host's /etc later appears inside.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from paddock.runtimes.base import HOME, UID, USER

SYSTEM_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")

_ETC = (
    "alpine-release", "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf",
    "crypto-policies", "debian_version", "ethertypes", "fedora-release", "fonts", "gai.conf",
    "host.conf", "inputrc", "java*", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias",
    "locale.conf", "localtime", "lsb-release", "magic", "magic.mime", "mime.types", "networks",
    "os-release", "perl", "pki/ca-trust/extracted", "pki/tls/cert.pem", "pki/tls/certs", "profile",
    "protocols", "python3*", "redhat-release", "rpc", "services", "sgml", "shells", "ssl/cert.pem",
    "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone", "xattr.conf", "xml",
)  # fmt: skip
"""Nothing that may hold a credential: no gitconfig, npmrc, pip.conf, environment, profile.d."""

_GENERATED = {
    "passwd": "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
    f"{USER}:x:{UID}:{UID}:{USER}:{HOME}:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": f"root:x:0:\ntty:x:5:\n{USER}:x:{UID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost paddock\n::1 localhost ip6-localhost ip6-loopback\n",
    "hostname": "paddock\n",
    "resolv.conf": "",
    "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
    "protocols: files\nservices: files\nethers: files\nrpc: files\n",
}
_LARGEST = 16 << 20


@dataclass(frozen=True, slots=True)
class HostView:
    folders: tuple[str, ...]
    """System folders to show read-only, at their own place."""
    symlinks: tuple[tuple[str, str], ...]
    """(target, place) of system folders that are symbolic links on this host."""
    etc: Path


def build_view(system: Path, root: Path = Path("/")) -> HostView:
    """Read the host once. `system` is the folder of the data folder that keeps what all sandboxes share."""
    folders, symlinks = ["/usr"], []
    for name in SYSTEM_FOLDERS:
        place = root / name
        if place.is_symlink():
            symlinks.append((os.readlink(place), f"/{name}"))
        elif place.is_dir():
            folders.append(f"/{name}")
    return HostView(tuple(folders), tuple(symlinks), _build_etc(system, root / "etc"))


def install_file(source: Path, folder: Path, name: str, mode: int) -> Path:
    """A copy under a name that its content decides: sandboxes that run keep the one they started with."""
    return install_bytes(source.read_bytes(), folder, name, mode)


def install_bytes(content: bytes, folder: Path, name: str, mode: int) -> Path:
    target = folder / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}"
    if not target.is_file():
        fd, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
        os.rename(temporary, target)
    return target


def _build_etc(system: Path, source: Path) -> Path:
    entries = _read_etc(source)
    target = system / f"etc-{_digest(entries)}"
    if target.is_dir():
        return target
    temporary = Path(tempfile.mkdtemp(dir=system, prefix="etc."))
    try:
        temporary.chmod(0o755)
        for name, entry in entries.items():
            _write(temporary / name, entry)
        try:
            temporary.rename(target)
        except OSError:
            # Another server of the same folder was quicker; it made the same.
            if not target.is_dir():
                raise
        return target
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _Entry:
    content: bytes
    """Of a file; of a symbolic link, its target."""
    mode: int | None
    """None: a symbolic link."""


def _read_etc(source: Path) -> dict[str, _Entry]:
    entries: dict[str, _Entry] = {}
    for pattern in _ETC:
        for path in sorted(source.glob(pattern)):
            _read(path, str(path.relative_to(source)), entries)
    for name, text in _GENERATED.items():
        entries[name] = _Entry(text.encode(), 0o644)
    entries["mtab"] = _Entry(b"/proc/self/mounts", None)
    return entries


def _read(path: Path, name: str, entries: dict[str, _Entry]) -> None:
    """Files that everyone on the host may read, and links. What is private there is not copied."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        entries[name] = _Entry(os.fsencode(os.readlink(path)), None)
    elif stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IROTH and status.st_size <= _LARGEST:
        entries[name] = _Entry(path.read_bytes(), 0o644 | (status.st_mode & 0o111))
    elif stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_IXOTH:
        for entry in sorted(path.iterdir()):
            _read(entry, f"{name}/{entry.name}", entries)


def _write(target: Path, entry: _Entry) -> None:
    _make_folder(target.parent)
    if entry.mode is None:
        os.symlink(entry.content, os.fsencode(target))
    else:
        target.write_bytes(entry.content)
        target.chmod(entry.mode)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir()
        folder.chmod(0o755)


def _digest(entries: dict[str, _Entry]) -> str:
    digest = hashlib.sha256()
    for name, entry in sorted(entries.items()):
        for part in (os.fsencode(name), str(entry.mode).encode(), hashlib.sha256(entry.content).digest()):
            digest.update(part + b"\0")
    return digest.hexdigest()[:16]
