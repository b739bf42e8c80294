"""Running the app: one process, or several workers on one socket and one mapped file."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
import socket
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import FastAPI
from uvicorn import Config, Server

from coldhash.errors import ColdhashError, SettingError, SourceError
from coldhash.recommender import model_file
from coldhash.serve.app import create_app
from coldhash.serve.limits import Limits
from coldhash.serve.log import event, log_as_json, to_stderr
from coldhash.serve.metrics import FOLDER
from coldhash.serve.middleware import checked_token
from coldhash.serve.registry import Shelf
from coldhash.serve.supervisor import CANNOT_START, Channel, Supervisor
from coldhash.serve.timeouts import CLOSE, Patient

LOOPBACK = ("127.0.0.1", "::1", "localhost")
KEEP_ALIVE = 75  # seconds: longer than the usual proxy keeps an idle connection
GRACE = 5  # seconds beyond the time limit of requests until the server gives up on them
MARGIN = 2  # seconds that a worker may take beyond these until it is killed


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What to serve, where, and how.

    Examples
    --------
    >>> Serving(file=Path("movies.coldhash"), port=0, workers=2).host
    '127.0.0.1'
    """

    file: Path
    host: str = "127.0.0.1"
    port: int = 8000  # 0: any free one
    workers: int = 1
    token: str | None = field(default=None, repr=False)
    allowed_hosts: tuple[str, ...] = ()  # beside those of loopback; see `hosts`
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise SettingError(f"workers={self.workers}", hint="at least 1")
        if not 0 <= self.port <= 65535:
            raise SettingError(f"port={self.port}", hint="0 to 65535; 0 is any free one")
        if self.token is not None:
            checked_token(self.token)

    @property
    def hosts(self) -> tuple[str, ...] | None:
        """The names in the header `Host` that are answered; None: all of them.

        A page elsewhere can have its own name point to this machine (DNS rebinding) and read what a
        server on loopback answers, unless that needs a token.
        """
        loopback = self.host in LOOPBACK or self.host.startswith("127.")
        unlimited = not self.allowed_hosts and (self.token is not None or not loopback)
        if unlimited or "*" in self.allowed_hosts:
            return None
        return (*LOOPBACK, "[::1]", self.host, *self.allowed_hosts)


def serve(serving: Serving) -> None:
    """Serve until the process is told to stop; requests that are running are answered first.

    Examples
    --------
    >>> serve(Serving(file=Path("missing.coldhash"), port=0))
    Traceback (most recent call last):
        ...
    coldhash.errors.SourceError: cannot read missing.coldhash: No such file or directory
    """
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a model to look for
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection is an open file
    with listen(serving.host, serving.port) as listener, contextlib.suppress(KeyboardInterrupt):
        if serving.workers == 1:
            app = create_app(
                serving.file,
                limits=serving.limits,
                token=serving.token,
                allowed_hosts=serving.hosts,
            )
            _tell(listener)
            _run(app, serving, listener)
        else:
            _serve_by_workers(serving, listener)


def run_worker(serving: Serving, listener: socket.socket, channel: socket.socket) -> None:
    """Serve as one of several workers: the file that the parent keeps open, then newer ones."""
    parent = Channel(channel)
    try:
        shelf = Shelf.of(f"/dev/fd/{parent.file}", watch=serving.file)
        app = create_app(
            shelf, limits=serving.limits, token=serving.token, allowed_hosts=serving.hosts
        )
    except ColdhashError as error:
        to_stderr(event("worker cannot start", error=str(error)))
        sys.exit(CANNOT_START)
    os.close(parent.file)
    parent.version = lambda: shelf.current.version
    with contextlib.suppress(KeyboardInterrupt):
        _run(app, serving, listener)


def _serve_by_workers(serving: Serving, listener: socket.socket) -> None:
    model_file.read(serving.file)  # a bad file is told here, once, and not by every worker
    with tempfile.TemporaryDirectory(prefix="coldhash-metrics-") as folder:
        os.environ[FOLDER] = folder
        _tell(listener)
        Supervisor(
            run_worker,
            (serving,),
            file=serving.file,
            listener=listener,
            n_workers=serving.workers,
            stop_seconds=_grace(serving) + MARGIN,
        ).run()


class _Server(Server):
    """uvicorn's server, whose last answers say that the connection is closed."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]
        await super().shutdown(sockets)
        to_stderr.flush()  # here: the process ends by the signal itself


def _run(app: FastAPI, serving: Serving, listener: socket.socket) -> None:
    log_as_json()
    config = Config(
        app,
        http=Patient,
        log_config=None,
        log_level="warning",
        access_log=False,  # the app writes its own, which holds nothing personal
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=_grace(serving),
    )
    _Server(config).run([listener])


def _grace(serving: Serving) -> int:
    return math.ceil(serving.limits.timeout) + GRACE


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket whose connections send every answer at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise SourceError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}",
            hint="another --port, or --port 0 for any free one",
        ) from None
    # accepted sockets inherit it; asyncio does not set it on sockets made by create_server
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _tell(listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(f"serving on http://{shown}:{port}", file=sys.stderr, flush=True)
