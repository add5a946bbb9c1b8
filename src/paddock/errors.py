"""Everything that Paddock reports as an error, as one tree.

    PaddockError                 500  internal
    ├── Invalid                  400  invalid            what was asked makes no sense
    │   └── TooLarge             413  too_large          ... or is bigger than allowed
    ├── Unauthenticated          401  unauthenticated    no token, or a wrong one
    ├── Denied                   403  denied             a known caller who may not
    ├── NotFound                 404  not_found
    ├── Conflict                 409  conflict           it exists, or its state forbids this
    │   └── Gone                 410  gone               it was there and has ended
    ├── RateLimited              429  rate_limited
    ├── Unsupported              501  unsupported        this runtime or host cannot do it
    ├── Unavailable              503  unavailable        try again: a guest, engine or store is away
    │   └── Exhausted            507  exhausted          no room: disk, processes, slots
    └── Timeout                  504  timeout

`reason` is stable and short: clients branch on it and metrics use it as a label. A class carries a default; a
raiser gives a more exact one ("name_taken", "sandbox_not_running"). `hint` says what to do next.
"""

from __future__ import annotations

from typing import Any, ClassVar


class PaddockError(Exception):
    status: ClassVar[int] = 500
    default_reason: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, reason: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.hint = hint

    def as_dict(self) -> dict[str, Any]:
        body: dict[str, Any] = {"error": self.message, "reason": self.reason}
        if self.hint:
            body["hint"] = self.hint
        return body


class Invalid(PaddockError):
    status = 400
    default_reason = "invalid"
    exit_code = 2


class TooLarge(Invalid):
    status = 413
    default_reason = "too_large"


class Unauthenticated(PaddockError):
    status = 401
    default_reason = "unauthenticated"
    exit_code = 4


class Denied(PaddockError):
    status = 403
    default_reason = "denied"
    exit_code = 4


class NotFound(PaddockError):
    status = 404
    default_reason = "not_found"
    exit_code = 3


class Conflict(PaddockError):
    status = 409
    default_reason = "conflict"


class Gone(Conflict):
    status = 410
    default_reason = "gone"
    exit_code = 3


class RateLimited(PaddockError):
    status = 429
    default_reason = "rate_limited"


class Unsupported(PaddockError):
    status = 501
    default_reason = "unsupported"


class Unavailable(PaddockError):
    status = 503
    default_reason = "unavailable"


class Exhausted(Unavailable):
    status = 507
    default_reason = "exhausted"


class Timeout(PaddockError):
    status = 504
    default_reason = "timeout"
    exit_code = 5


BY_STATUS: dict[int, type[PaddockError]] = {
    kind.status: kind
    for kind in (
        PaddockError, Invalid, TooLarge, Unauthenticated, Denied, NotFound, Conflict, Gone,
        RateLimited, Unsupported, Unavailable, Exhausted, Timeout,
    )
}  # fmt: skip
"""The class a client raises for an HTTP status."""
