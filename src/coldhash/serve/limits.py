"""What the service refuses, and how long it works on one request."""

from __future__ import annotations

from dataclasses import dataclass, fields

from coldhash.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on a request; what is beyond them is refused, with the bound in the answer.

    Examples
    --------
    >>> Limits(max_k=50, timeout=5.0).max_k
    50
    """

    max_body: int = 1_000_000  # bytes
    max_k: int = 1000
    max_batch: int = 1000  # people in one request
    max_batch_items: int = 20_000  # people x k of one request
    max_history: int = 1000  # ratings of one person
    max_waiting: int = 256  # requests in line for a thread
    timeout: float = 30.0  # seconds, reading the request and sending the answer included

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not value > 0:
                raise SettingError(f"{each.name}={value}", hint="more than 0")
