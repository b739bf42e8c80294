"""Run the app: in one process, or in several workers on one socket and one mapped copy.

Workers that die are replaced. Their parent never blocks for longer than a poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from prometheus_client.multiprocess import mark_process_dead
from uvicorn import Config, Server
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from coldhash.errors import SettingError, check_positive
from coldhash.serve.app import check_token, create_app
from coldhash.serve.monitoring import FOLDER, JsonHandler, event, to_stderr
from coldhash.serve.registry import ModelRegistry, explain_failure
from coldhash.serve.schemas import Limits

LOOPBACK = ("127.0.0.1", "::1", "localhost")
KEEP_ALIVE = 75  # seconds: longer than the usual proxy keeps an idle connection
GRACE = 5  # seconds beyond the time limit of requests until the server gives up on them
MARGIN = 2  # seconds beyond these until a worker is killed
DRAIN = 1.0  # seconds for which a stopping server waits for requests on idle connections
CLOSE = (b"connection", b"close")
POLL = 0.2  # seconds between two checks of the workers
STEADY = 30  # seconds a worker must live for its death not to count as a repeated one
DELAYS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # seconds before restarts, by deaths in a row


@dataclass(frozen=True, kw_only=True)
class Serving:
    """The settings of a server.

    Parameters
    ----------
    file
        The model file.
    host, port
        The address to listen on; port 0 is any free one.
    workers
        How many processes share the file.
    token
        The token that requests need; None: no token.
    allowed_hosts
        Names in the header `Host` that are answered besides those of loopback; see `hosts`.
    allowed_origins
        Origins of web pages whose scripts may send requests (CORS); `*` for any.
    limits
        Limits of requests.

    Raises
    ------
    SettingError
        A number is out of range, or the token is empty or not ASCII.

    Examples
    --------
    >>> Serving(file=Path("movies.coldhash"), port=0, workers=2).host
    '127.0.0.1'
    """

    file: Path
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    token: str | None = field(default=None, repr=False)
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        check_positive("workers", self.workers)
        if not 0 <= self.port < 1 << 16:
            raise SettingError(f"port={self.port}", hint="0 to 65535; 0 is any free one")
        if self.token is not None:
            check_token(self.token)

    @property
    def hosts(self) -> tuple[str, ...] | None:
        """The names in the header `Host` that are answered; None: all of them.

        A web page can make its own name point to this machine (DNS rebinding) and read what a
        server on loopback answers, unless that needs a token.
        """
        loopback = self.host in LOOPBACK or self.host.startswith("127.")
        unlimited = not self.allowed_hosts and (self.token is not None or not loopback)
        if unlimited or "*" in self.allowed_hosts:
            return None
        return (*LOOPBACK, "[::1]", self.host, *self.allowed_hosts)

    @property
    def grace_seconds(self) -> int:
        """How long a stopping server waits for requests, and an idle connection may last."""
        return math.ceil(self.limits.timeout) + GRACE


def serve(serving: Serving) -> None:
    """Serve until SIGTERM or SIGINT; requests that have begun are answered first.

    Parameters
    ----------
    serving
        The settings.

    Raises
    ------
    SourceError, ModelFileError
        The file cannot be read, or is not a model file; or the address is in use.

    Examples
    --------
    >>> serve(Serving(file=Path("missing.coldhash"), port=0))
    Traceback (most recent call last):
        ...
    coldhash.errors.SourceError: cannot read missing.coldhash: No such file or directory
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a model to replace
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection is an open file
    with listen(serving.host, serving.port) as listener, contextlib.suppress(KeyboardInterrupt):
        if serving.workers == 1:
            registry = ModelRegistry(serving.file)
            _announce(serving, listener)
            _run(serving, registry, listener)
            return
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # the folder is removed, too
        hint = "name a folder in TMPDIR, or serve with one worker"
        with explain_failure("no temporary folder, which several workers need", hint):
            temporary = tempfile.TemporaryDirectory(prefix="coldhash-serve-")
        with temporary as folder:
            copies = Path(folder)
            ModelRegistry(serving.file, copies)  # workers begin with the copy that it has accepted
            os.environ[FOLDER] = folder
            _announce(serving, listener)
            target = partial(run_worker, serving, copies)
            Supervisor(target, listener, serving.workers, serving.grace_seconds + MARGIN).run()


@dataclass(eq=False)
class Supervisor:
    """Keeps `n_workers` processes alive that run `target(listener)`."""

    target: Callable[[socket.socket], object]
    listener: socket.socket
    n_workers: int
    stop_seconds: float

    def __post_init__(self) -> None:
        self._workers: list[Worker] = []
        self._restarts = [(0.0, 0)] * self.n_workers  # when, and after how many deaths in a row
        self._received: set[int] = set()  # signals

    def run(self) -> None:
        """Run until SIGTERM or SIGINT; pass SIGHUP on to the workers."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._received.add(number))
        try:
            while not self._received & {signal.SIGTERM, signal.SIGINT}:
                self._check_workers(time.monotonic())
                wait([worker.process.sentinel for worker in self._workers], POLL)
        finally:
            self._stop()
            to_stderr.flush()

    def _check_workers(self, now: float) -> None:
        if signal.SIGHUP in self._received:
            self._received.remove(signal.SIGHUP)
            self._send(signal.SIGHUP)
        for worker in [each for each in self._workers if not each.process.is_alive()]:
            self._handle_death(worker, now)
        for restart in [restart for restart in self._restarts if restart[0] <= now]:
            self._restarts.remove(restart)
            self._start(now, n_deaths=restart[1])

    def _start(self, now: float, n_deaths: int) -> None:
        process = multiprocessing.get_context("spawn").Process(
            target=self.target, args=(self.listener,)
        )
        handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as long as the worker starts
        process.start()
        signal.signal(signal.SIGHUP, handler)
        self._workers.append(Worker(process, now, n_deaths))
        to_stderr(event("worker started", pid=process.pid))

    def _handle_death(self, worker: Worker, now: float) -> None:
        """Log a death and schedule the restart: with a growing delay, if deaths repeat."""
        self._workers.remove(worker)
        pid, code = worker.process.pid, worker.process.exitcode or 0
        mark_process_dead(pid)  # type: ignore[no-untyped-call]
        n_deaths = worker.n_deaths + 1 if now - worker.started < STEADY else 1
        delay = DELAYS[min(n_deaths, len(DELAYS)) - 1]
        self._restarts.append((now + delay, n_deaths))
        ended = {"signal": signal.Signals(-code).name} if code < 0 else {"exit_code": code}
        to_stderr(event("worker died", pid=pid, **ended, restart_seconds=delay))

    def _send(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.process.is_alive():
                assert worker.process.pid is not None
                os.kill(worker.process.pid, number)

    def _stop(self) -> None:
        """Stop all workers; kill those that have not ended in time."""
        self.listener.close()
        self._send(signal.SIGTERM)
        self._send(signal.SIGCONT)  # a stopped one could not end
        until = time.monotonic() + self.stop_seconds
        for worker in self._workers:
            process = worker.process
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                to_stderr(event("worker killed", pid=process.pid))
                process.kill()
                process.join()


class Worker(NamedTuple):
    """A worker process, when it started, and how many deaths in a row there were before."""

    process: SpawnProcess
    started: float
    n_deaths: int


def run_worker(serving: Serving, copies: Path, listener: socket.socket) -> None:
    """Serve as one of several workers, which share copies of the file."""
    Thread(target=_end_with_parent, args=(copies,), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        _run(serving, ModelRegistry(serving.file, copies), listener)


def _end_with_parent(copies: Path) -> None:
    """Stop this worker when its parent is gone: or the port would stay in use."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    shutil.rmtree(copies, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)


def _run(serving: Serving, registry: ModelRegistry, listener: socket.socket) -> None:
    app = create_app(
        registry,
        limits=serving.limits,
        token=serving.token,
        allowed_hosts=serving.hosts,
        allowed_origins=serving.allowed_origins,
    )
    logging.basicConfig(handlers=[JsonHandler()], force=True)  # of uvicorn, asyncio and others
    gc.freeze()  # a collection looks at what requests leave, not at the model and the modules
    config = Config(
        app,
        http=SlowClientTimeout,
        log_config=None,
        log_level="warning",
        access_log=False,  # the app writes its own, without personal data
        proxy_headers=False,  # nothing depends on the address of a client
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=serving.grace_seconds,
    )
    _Server(config).run([listener])


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket whose connections send answers without delay."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    hint = "another --port, or --port 0 for any free one"
    with explain_failure(f"cannot listen on {host}, port {port}", hint):
        listener = socket.create_server((host, port), family=family, backlog=2048)
    # accepted sockets inherit it; asyncio does not set it on sockets made by create_server
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _announce(serving: Serving, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    print(f"serving on http://{name}:{port}", file=sys.stderr, flush=True)
    if serving.token is None and serving.host not in LOOPBACK:
        print("warning: anybody can send requests; see --token-file", file=sys.stderr, flush=True)


class _Server(Server):
    """uvicorn's server, whose last answers announce that the connection is closed."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]
        await super().shutdown(sockets)
        to_stderr.flush()  # here: the process ends by the signal itself


class SlowClientTimeout(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol, with a time limit for connections on which no request makes progress.

    uvicorn waits for the head of a request, and for a client to take the last of an answer, without
    a limit, so a slow client would hold its connection for ever. Connections are checked every
    `timeout_graceful_shutdown` seconds, which costs less than a timer for every request; one is
    closed if nothing has ended between two checks.

    A stopping uvicorn closes idle connections at once, on which the next request may be on its way
    already: here, they are closed a little later.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start to check the connection."""
        super().connection_made(_JoinedWrites(transport))
        self._last_cycle: object = self  # the request at the last check; before the first, none
        self._check()
        if CLOSE in self.server_state.default_headers:  # accepted while the server stopped
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to check the connection."""
        self._next_check.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Answer the current request, or one that arrives soon, with CLOSE; else close.

        The server has added CLOSE to the headers of all answers by now.
        """
        if self.cycle is not None:
            self.cycle.default_headers = self.server_state.default_headers
        self.loop.call_later(DRAIN, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    def _check(self) -> None:
        # uvicorn closes connections that are idle between two requests, unless they are closing
        idle = self.timeout_keep_alive_task is not None and not self.transport.is_closing()
        if self.cycle is self._last_cycle and not idle:
            self.transport.abort()
        else:
            self._last_cycle = self.cycle
            seconds = self.config.timeout_graceful_shutdown
            self._next_check = self.loop.call_later(seconds, self._check)


class _JoinedWrites:
    """A transport that sends the head of an answer together with the first part of its body.

    uvicorn writes them apart, which takes a second system call and wakes the client twice.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
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
