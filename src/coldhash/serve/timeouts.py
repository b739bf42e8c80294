"""How long a connection may stay open without a request, and how it ends when the server stops.

The time limit of a request begins when its head is there, and uvicorn waits for a head, and for a
client to take the last of an answer, for ever. A client that is slow on purpose, or whose machine
is gone, would hold its connection until the server ends. And a stopping uvicorn closes idle
connections at once, on which the next request may be on its way already.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

CLOSE = (b"connection", b"close")
DRAIN = 1.0  # seconds for which a stopping server waits for requests on idle connections


class OneWrite:
    """A transport that sends the head of an answer together with the first of its body.

    uvicorn writes them apart, which takes a second system call and wakes the client twice.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write, but keep the head of a final answer until the next write."""
        if not self._head and data.startswith(b"HTTP/1.1 ") and data[9:10] != b"1":
            self._head = data
        elif self._head or data:
            self._transport.write(self._head + data)
            self._head = b""

    def close(self) -> None:
        """Write what was kept, then close."""
        self.write(b"")
        self._transport.close()


class Patient(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol, which drops a connection where nothing has come to an end between looks.

    It looks as often as uvicorn gives up on requests when it stops. A look now and then costs less
    than a clock for every request; a connection is dropped after one to two of these times.
    """

    def connection_made(self, transport: Any) -> None:
        """Begin to look."""
        super().connection_made(OneWrite(transport))
        self._seen: object = None  # the request of the last look
        self._look_later()
        if CLOSE in self.server_state.default_headers:  # accepted while the server stopped
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more."""
        self._next_look.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Answer the current request, or one that arrives soon, with CLOSE; else close.

        The server has put CLOSE among the headers of all answers by now.
        """
        if self.cycle is not None:
            self.cycle.default_headers = self.server_state.default_headers
        self.loop.call_later(DRAIN, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    def _look_later(self) -> None:
        self._next_look = self.loop.call_later(self.config.timeout_graceful_shutdown, self._look)

    def _look(self) -> None:
        # a connection that is idle between two requests is uvicorn's to close, if that can be done
        idle = self.timeout_keep_alive_task is not None and not self.transport.is_closing()
        if self.cycle is self._seen and not idle:
            self.transport.abort()
        else:
            self._seen = self.cycle
            self._look_later()
