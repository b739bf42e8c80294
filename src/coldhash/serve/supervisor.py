"""Several workers on one socket: start them, replace those that die, stop them.

The parent never blocks for longer than a poll. It keeps the last model file that a worker accepted
open, and workers start from that: a damaged file in its place does not keep a worker from starting.
Each worker has a socket to its parent. Through it the worker first receives the open file, and then
reports every second which version it serves; its end tells a worker that the parent is gone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from prometheus_client.multiprocess import mark_process_dead

from coldhash.errors import WorkerError
from coldhash.recommender.model_file import N_CHECKSUM
from coldhash.serve.log import event, to_stderr
from coldhash.serve.registry import N_VERSION

POLL = 0.2  # seconds between two looks at the workers
REPORT_SECONDS = 1.0  # between two reports of a worker
SILENCE = 60  # seconds without a report until a worker is replaced
STEADY = 30  # seconds a worker must live for its death not to count as a repeated one
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0  # seconds before a restart, from the second death on
CANNOT_START = 3  # exit code of a worker that cannot load the model
LOADING = b"-" * N_VERSION  # what a worker reports until it serves a version


@dataclass(eq=False)
class Worker:
    """A worker process, or the place of one that waits for its restart."""

    process: SpawnProcess | None = None
    channel: socket.socket | None = None
    started: float = 0.0
    heard: float = 0.0
    version: bytes = LOADING
    deaths: int = 0  # in a row, each soon after its start
    restart_at: float = 0.0

    def listen(self, now: float) -> None:
        """Take the reports that have arrived."""
        assert self.channel is not None
        with contextlib.suppress(BlockingIOError, ConnectionError):
            if reports := self.channel.recv(1 << 16):
                self.heard, self.version = now, reports[-N_VERSION:]


class Supervisor:
    """Keeps `n_workers` processes alive that run `target(*args, listener, channel)`."""

    def __init__(
        self,
        target: Callable[..., None],
        args: tuple[Any, ...],
        *,
        file: Path,
        listener: socket.socket,
        n_workers: int,
        stop_seconds: float,
    ) -> None:
        self._target, self._args = target, args
        self._file, self._listener = file, listener
        self._stop_seconds = stop_seconds
        self._workers = [Worker() for _ in range(n_workers)]
        self._context = multiprocessing.get_context("spawn")
        self._stopping = self._reload = self._served = False
        self._kept, self._version = self._open()

    def run(self) -> None:
        """Run until SIGTERM or SIGINT; pass SIGHUP on to the workers."""

        def stop(*_: Any) -> None:
            self._stopping = True

        def reload(*_: Any) -> None:
            self._reload = True

        for number, handler in (
            (signal.SIGTERM, stop),
            (signal.SIGINT, stop),
            (signal.SIGHUP, reload),
        ):
            signal.signal(number, handler)
        try:
            while not self._stopping:
                self._look()
                alive = [each.process.sentinel for each in self._workers if each.process]
                multiprocessing.connection.wait(alive, POLL)
        finally:
            self._stop()
            to_stderr.flush()

    def _look(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.process is None:
                if now >= worker.restart_at:
                    self._start(worker, now)
                continue
            worker.listen(now)
            if not worker.process.is_alive():
                self._bury(worker, now)
            elif now - worker.heard > SILENCE:
                worker.process.kill()
            elif worker.version != LOADING:
                self._served = True
                if worker.version != self._version:
                    self._keep(worker.version)
        if self._reload:
            self._reload = False
            for worker in self._workers:
                # one that is starting looks at the file by itself, and cannot take the signal yet
                if worker.process and worker.version != LOADING and worker.process.is_alive():
                    assert worker.process.pid is not None
                    os.kill(worker.process.pid, signal.SIGHUP)

    def _start(self, worker: Worker, now: float) -> None:
        worker.channel, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(worker.channel, [LOADING], [self._kept])
            args = (*self._args, self._listener, theirs)
            worker.process = self._context.Process(target=self._target, args=args)
            worker.process.start()
        worker.channel.setblocking(False)
        worker.started = worker.heard = now
        worker.version = LOADING
        to_stderr(event("worker started", pid=worker.process.pid))

    def _bury(self, worker: Worker, now: float) -> None:
        """Log a death, and say when the replacement starts: later and later, if it repeats."""
        assert worker.process is not None
        assert worker.channel is not None
        pid, code = worker.process.pid, worker.process.exitcode or 0
        worker.process.close()
        worker.channel.close()
        worker.process = None
        mark_process_dead(pid)  # type: ignore[no-untyped-call]
        if code == CANNOT_START and not self._served:
            raise WorkerError("no worker can load the model", hint="the log says why")
        worker.deaths = worker.deaths + 1 if now - worker.started < STEADY else 1
        delay = 0.0
        if worker.deaths > 1:
            delay = min(FIRST_DELAY * 2 ** min(worker.deaths - 2, 10), LONGEST_DELAY)
        worker.restart_at = now + delay
        ended = {"signal": signal.Signals(-code).name} if code < 0 else {"exit_code": code}
        to_stderr(event("worker died", pid=pid, **ended, restart_seconds=delay))

    def _open(self) -> tuple[int, bytes]:
        """Open the file in place; return it with its version."""
        fd = os.open(self._file, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO is not waited for
        size = max(os.fstat(fd).st_size, N_CHECKSUM)
        return fd, os.pread(fd, N_CHECKSUM, size - N_CHECKSUM).hex()[:N_VERSION].encode()

    def _keep(self, version: bytes) -> None:
        """Keep the file in place open if it is the version that a worker has accepted."""
        with contextlib.suppress(OSError):
            fd, found = self._open()
            if found == version:
                fd, self._kept, self._version = self._kept, fd, version
                to_stderr(event("model kept", model=version.decode()))
            os.close(fd)

    def _stop(self) -> None:
        """Tell all workers to stop; kill those that have not ended in time."""
        self._listener.close()
        alive = [each.process for each in self._workers if each.process]
        for process in alive:
            if process.is_alive():
                process.terminate()
                assert process.pid is not None
                os.kill(process.pid, signal.SIGCONT)  # a stopped one could not end
        until = time.monotonic() + self._stop_seconds
        while alive and time.monotonic() < until:
            multiprocessing.connection.wait([process.sentinel for process in alive], POLL)
            alive = [process for process in alive if process.is_alive()]
        for process in alive:
            to_stderr(event("worker killed", pid=process.pid))
            process.kill()
            process.join()
        os.close(self._kept)


class Channel:
    """A worker's end: the open model file, and the reports to the parent."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        _, (self.file,), _, _ = socket.recv_fds(channel, N_VERSION, 1)
        self.version: Callable[[], str] = LOADING.decode
        threading.Thread(target=self._report, daemon=True, name="coldhash-report").start()

    def _report(self) -> None:
        """Report until the parent is gone, then end: or the port would stay taken."""
        with contextlib.suppress(OSError):
            self._channel.send(self.version().encode())
            # the parent says nothing more, so there is something to read only at the end
            while not select.select([self._channel], [], [], REPORT_SECONDS)[0]:
                self._channel.send(self.version().encode())
        os.kill(os.getpid(), signal.SIGTERM)
