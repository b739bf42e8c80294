"""Running the app: one process, or several workers on one socket and one mapped file."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import multiprocessing.connection
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from uvicorn import Config, Server
from uvicorn.supervisors import Multiprocess

from coldhash import store
from coldhash.errors import SettingError, SourceError
from coldhash.serve.app import create_app
from coldhash.serve.gate import checked_token
from coldhash.serve.limits import Limits
from coldhash.serve.metrics import FOLDER
from coldhash.serve.patience import Patient

SETTINGS = "COLDHASH_SERVE"  # the variable by which workers learn what to serve
TOKEN = "COLDHASH_TOKEN"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
KEEP_ALIVE = 75  # seconds: longer than the usual proxy keeps an idle connection
PATIENCE = 60  # seconds without a sign of life until a worker is replaced; starting takes a few
GRACE = 5  # seconds beyond the time limit of requests until the server gives up on them


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
    with _listening(serving.host, serving.port) as listener, contextlib.suppress(KeyboardInterrupt):
        if serving.workers == 1:
            app = create_app(
                serving.file,
                limits=serving.limits,
                token=serving.token,
                allowed_hosts=serving.hosts,
            )
            _log_as_json()
            _tell(listener)
            Server(_config(serving, app)).run([listener])
        else:
            _serve_by_workers(serving, listener)


def worker_app() -> FastAPI:
    """Make the app of one worker, by what the parent put into the environment."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _log_as_json()
    settings = json.loads(os.environ[SETTINGS])
    limits = Limits(**settings["limits"])
    return create_app(
        settings["file"],
        limits=limits,
        token=os.environ.get(TOKEN),
        allowed_hosts=settings["hosts"],
    )


def _end_with_parent() -> None:
    """End when the parent is killed, which cannot tell: or the port would stay taken."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def _serve_by_workers(serving: Serving, listener: socket.socket) -> None:
    store.read(serving.file)  # a bad file is told here, once, and not by every worker
    settings = {
        "file": str(serving.file),
        "limits": asdict(serving.limits),
        "hosts": serving.hosts,
    }
    with tempfile.TemporaryDirectory(prefix="coldhash-metrics-") as folder:
        os.environ |= {SETTINGS: json.dumps(settings), FOLDER: folder}
        os.environ.pop(TOKEN, None)
        if serving.token is not None:
            os.environ[TOKEN] = serving.token
        _tell(listener)
        Workers(_config(serving, "coldhash.serve.server:worker_app"), sockets=[listener]).run()


class Workers(Multiprocess):
    """Workers that are told of a new model, and whose figures are forgotten when they die."""

    def handle_hup(self) -> None:
        """Pass SIGHUP on: a worker need not be restarted to serve another model."""
        for process in self.processes:
            if process.pid is not None and process.process.is_alive():
                os.kill(process.pid, signal.SIGHUP)

    def keep_subprocess_alive(self) -> None:
        """Start another worker for one that died."""
        from prometheus_client.multiprocess import mark_process_dead

        before = {process.pid for process in self.processes}
        super().keep_subprocess_alive()
        for pid in before - {process.pid for process in self.processes}:
            if pid is not None:
                mark_process_dead(pid)  # type: ignore[no-untyped-call]


def _config(serving: Serving, app: FastAPI | str) -> Config:
    return Config(
        app,
        factory=isinstance(app, str),
        http=Patient,
        workers=serving.workers,
        log_config=None,
        log_level="warning",
        access_log=False,  # the app writes its own, which holds nothing personal
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_worker_healthcheck=PATIENCE,
        timeout_graceful_shutdown=math.ceil(serving.limits.timeout) + GRACE,
    )


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise SourceError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}",
            hint="another --port, or --port 0 for any free one",
        ) from None
    listener.set_inheritable(True)
    return listener


def _tell(listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(f"serving on http://{shown}:{port}", file=sys.stderr, flush=True)


class _JsonLines(logging.Formatter):
    """What uvicorn has to say, as a line of JSON; without tracebacks, which may hold requests."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry: dict[str, Any] = {"time": time, "event": "server", "message": record.getMessage()}
        if record.exc_info and record.exc_info[0] is not None:
            entry["error"] = record.exc_info[0].__name__
        return json.dumps(entry)


def _log_as_json() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines())
    logger = logging.getLogger("uvicorn")
    logger.handlers = [handler]
    logger.propagate = False
