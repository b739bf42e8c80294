"""Errors of the service: one shape for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import orjson

from coldhash.errors import ColdhashError, UnknownId


class Refused(Exception):
    """A request that gets an error for an answer: the status, what is wrong, and the way out."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        field: str | None = None,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field
        self.hint = hint
        self.headers = dict(headers or {})

    @property
    def body(self) -> bytes:
        """The answer, as JSON."""
        parts = {"field": self.field, "message": self.message, "hint": self.hint}
        return orjson.dumps({"error": parts})


@contextmanager
def blaming(field: str) -> Iterator[None]:
    """Turn the library's errors into refusals that name a field of the request."""
    try:
        yield
    except ColdhashError as error:
        status = 404 if isinstance(error, UnknownId) else 422
        raise Refused(
            status, error.message, field=error.argument or field, hint=error.hint
        ) from None
