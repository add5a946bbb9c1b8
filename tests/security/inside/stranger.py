"""Dials the guest's socket as somebody who is not the guest, in every way, as often as it can, until told to
stop; then prints what that got.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import time

PATH = "/run/paddock/guest.sock"
HEADER = struct.Struct("<IIBBH")


def dial(secret: bytes) -> bytes:
    payload = struct.pack("<HH", 1, 0) + secret + b"b" * 16 + struct.pack("<I", 1)
    return HEADER.pack(len(payload), 0, 65, 0, 0) + payload


def main() -> None:
    secret = bytes.fromhex(os.environ["SECRET"])
    hellos = [
        b"", b"\0" * 68, os.urandom(5000), dial(bytes(32)), dial(secret), dial(secret)[:30],
        b"GET / HTTP/1.0\r\n\r\n", HEADER.pack(0xFFFFFFFF, 0, 65, 0, 0),
    ]  # fmt: skip
    found = {"connected": 0, "answered": 0, "refused": 0, "absent": 0}
    held: list[socket.socket] = []
    print("ready", flush=True)
    while not os.path.exists("stop"):
        for hello in hellos:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(0.05)
            try:
                sock.connect(PATH)
                found["connected"] += 1
                sock.send(hello)
                held.append(sock)
                found["answered"] += bool(sock.recv(1))
            except FileNotFoundError:
                found["absent"] += 1
                time.sleep(0.002)
            except OSError:
                found["refused"] += 1
        # Some stay open, as if they could take all the places there are.
        for sock in held[:-20]:
            sock.close()
        del held[:-20]
    json.dump(found, sys.stdout)


main()
