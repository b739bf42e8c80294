"""Limits of requests, and the error that a request is answered with."""

from __future__ import annotations

from dataclasses import dataclass, fields

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

from coldhash.errors import ColdhashError, SettingError, UnknownId

JSON = "application/json"
HINT = "see /openapi.json"
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}  # of errors


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a request; the answer to a request beyond them names the limit.

    Parameters
    ----------
    max_body
        Bytes of the body.
    max_k
        Items of an answer.
    max_batch
        People of a batch.
    max_batch_items
        People x k of a batch.
    max_history
        Ratings of one person.
    max_waiting
        Requests that wait for a thread.
    timeout
        Seconds, from the head of the request to the last byte of the answer.

    Raises
    ------
    SettingError
        A limit is not positive.

    Examples
    --------
    >>> Limits(max_k=50, timeout=5.0).max_k
    50
    """

    max_body: int = 1_000_000
    max_k: int = 1000
    max_batch: int = 1000
    max_batch_items: int = 20_000
    max_history: int = 1000
    max_waiting: int = 256
    timeout: float = 30.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise SettingError(f"{field.name}={value}", hint="more than 0")

    def check_length(self, n_bytes: int) -> None:
        """Raise a request error if a body is too long."""
        if n_bytes > self.max_body:
            hint = f"at most {self.max_body:,} bytes"
            raise RequestError(413, "the body is too large for this server", hint=hint)


class RequestError(HTTPException):
    """An error of a request: the status, the message, the field that is wrong and a hint."""

    def __init__(
        self, status: int, message: str, *, field: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(status, message, HEADERS.get(status))
        self.field = field
        self.hint = hint

    @property
    def content(self) -> dict[str, dict[str, str | None]]:
        """What the answer to the request says."""
        return {"error": {"field": self.field, "message": self.detail, "hint": self.hint}}


def error_response(error: HTTPException) -> Response:
    """Return the answer that reports an error; errors of Starlette have no field."""
    if isinstance(error, RequestError):
        content = error.content
    else:
        content = RequestError(error.status_code, error.detail, hint=HINT).content
    return Response(orjson.dumps(content), error.status_code, error.headers, JSON)


def library_error(error: ColdhashError, field: str | None) -> RequestError:
    """Return an error of the library as that of a request, about a field."""
    status = 404 if isinstance(error, UnknownId) else 422
    return RequestError(status, error.message, field=error.argument or field, hint=error.hint)
