"""The client of Paddock's HTTP API: `Client(url, token)`.

Names are imported when they are first used, so that a command which only attaches does not pay for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddock.client.client import Client
    from paddock.client.transport import Address

__all__ = ["Address", "Client"]


def __getattr__(name: str) -> Any:
    if name == "Client":
        from paddock.client.client import Client

        return Client
    if name == "Address":
        from paddock.client.transport import Address

        return Address
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
