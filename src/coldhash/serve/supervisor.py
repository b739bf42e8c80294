"""Several workers on one socket: start them, replace those that die, stop them.

The parent never blocks for longer than a poll. It keeps the copy of the last model file that a
worker accepted open, and workers start from that: a damaged file in its place does not keep a
worker from starting. Each worker has a pipe to its parent, through which it reports every second
the stamp of the file that it serves a copy of.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

import orjson
from prometheus_client.multiprocess import mark_process_dead

from coldhash.errors import WorkerError
from coldhash.serve.monitoring import event, to_stderr
from coldhash.serve.registry import ModelCopy, ModelRegistry, Stamp, forget_copies, name_copy

POLL = 0.2  # seconds between two checks of the workers
REPORT_SECONDS = 1.0  # between two reports of a worker
MAX_SILENCE = 60  # seconds without a report until a worker is replaced
STEADY = 30  # seconds a worker must live for its death not to count as a repeated one
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0  # seconds before a restart, from the second death on
CANNOT_START = 3  # exit code of a worker that cannot load the model
LOADING: Stamp = ()  # what a worker reports until it serves a model: that of the file


@dataclass(eq=False)
class Worker:
    """A worker process, and the parent's end of its pipe."""

    process: SpawnProcess
    reports: Connection
    started: float
    last_report: float
    deaths: int  # of its predecessors in a row, each soon after its start
    stamp: Stamp = LOADING

    def read_reports(self, now: float) -> None:
        """Read the reports that have arrived."""
        with contextlib.suppress(EOFError):  # the worker has ended
            while self.reports.poll():
                stamp = orjson.loads(self.reports.recv_bytes())
                self.last_report, self.stamp = now, tuple(stamp)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it is alive."""
        if self.process.is_alive():
            assert self.process.pid is not None
            os.kill(self.process.pid, number)


@dataclass(eq=False)
class Supervisor:
    """Keeps `n_workers` processes alive that run `target(listener, start, reports)`."""

    target: Callable[..., object]
    start: ModelCopy  # from which workers start: later, the last one that was accepted
    copies: Path
    listener: socket.socket
    n_workers: int
    stop_seconds: float

    def __post_init__(self) -> None:
        self._workers: list[Worker] = []
        self._restarts = [(0.0, 0)] * self.n_workers  # when, and after how many deaths in a row
        self._received: set[int] = set()  # signals
        self._has_served = False
        self._copies_seen: dict[Path, float] = {}  # when each copy that has a name was first seen

    def run(self) -> None:
        """Run until SIGTERM or SIGINT; pass SIGHUP on to the workers."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: self._received.add(number))
        try:
            while not self._received & {signal.SIGTERM, signal.SIGINT}:
                self._check_workers()
                alive = [worker.process.sentinel for worker in self._workers]
                wait(alive, POLL)
        finally:
            self._stop()
            to_stderr.flush()

    def _check_workers(self) -> None:
        now = time.monotonic()
        reload = signal.SIGHUP in self._received
        self._received.discard(signal.SIGHUP)
        for restart in [restart for restart in self._restarts if restart[0] <= now]:
            self._restarts.remove(restart)
            self._start(now, n_deaths=restart[1])
        for worker in list(self._workers):
            before = worker.stamp
            worker.read_reports(now)
            if not worker.process.is_alive():
                self._handle_death(worker, now)
            elif now - worker.last_report > MAX_SILENCE:
                worker.process.kill()
            elif worker.stamp != LOADING:
                self._has_served = True
                if reload:  # a worker that is starting checks the file by itself
                    worker.send_signal(signal.SIGHUP)
                if worker.stamp not in (before, self.start.stamp):
                    self._keep(worker.stamp)
        with contextlib.suppress(OSError):  # something else may remove temporary files
            forget_copies(self.copies, self._copies_seen, now)

    def _start(self, now: float, n_deaths: int) -> None:
        context = multiprocessing.get_context("spawn")
        reader, writer = context.Pipe(duplex=False)
        with writer:
            arguments = (self.listener, self.start, writer)
            process = context.Process(target=self.target, args=arguments)
            process.start()
        self._workers.append(Worker(process, reader, now, now, n_deaths))
        to_stderr(event("worker started", pid=process.pid))

    def _handle_death(self, worker: Worker, now: float) -> None:
        """Log a death and schedule the restart: with a growing delay, if deaths repeat."""
        self._workers.remove(worker)
        pid, code = worker.process.pid, worker.process.exitcode or 0
        worker.process.close()
        worker.reports.close()
        mark_process_dead(pid)  # type: ignore[no-untyped-call]
        if code == CANNOT_START and not self._has_served:
            raise WorkerError("no worker can load the model", hint="see the log for the reason")
        n_deaths = worker.deaths + 1 if now - worker.started < STEADY else 1
        delay = 0.0
        if n_deaths > 1:
            delay = min(FIRST_DELAY * 2 ** min(n_deaths - 2, 10), LONGEST_DELAY)
        self._restarts.append((now + delay, n_deaths))
        ended = {"signal": signal.Signals(-code).name} if code < 0 else {"exit_code": code}
        to_stderr(event("worker died", pid=pid, **ended, restart_seconds=delay))

    def _keep(self, stamp: Stamp) -> None:
        """Keep the copy that a worker has accepted open."""
        with contextlib.suppress(OSError):  # something else may remove temporary files
            copy = ModelCopy(name_copy(self.copies, stamp).open("rb"), stamp)
            self.start.file.close()
            self.start = copy
            to_stderr(event("model kept", model=copy.version))

    def _stop(self) -> None:
        """Stop all workers; kill those that have not ended in time."""
        self.listener.close()
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
            worker.send_signal(signal.SIGCONT)  # a stopped one could not end
        alive = [worker.process for worker in self._workers]
        until = time.monotonic() + self.stop_seconds
        while alive and time.monotonic() < until:
            wait([process.sentinel for process in alive], POLL)
            alive = [process for process in alive if process.is_alive()]
        for process in alive:
            to_stderr(event("worker killed", pid=process.pid))
            process.kill()
            process.join()
        self.start.file.close()


def report(reports: Connection, served: Sequence[ModelRegistry]) -> None:
    """Report to the parent until it is gone, then end: or the port would stay in use."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    with contextlib.suppress(OSError):
        while not wait([parent.sentinel], REPORT_SECONDS):
            stamp = served[0].current.stamp if served else LOADING
            reports.send_bytes(orjson.dumps(stamp))
    os.kill(os.getpid(), signal.SIGTERM)
