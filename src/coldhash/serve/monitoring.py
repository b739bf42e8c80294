"""The log (JSON lines on stderr, written by a thread of its own) and the metrics for Prometheus.

With several workers, each writes its metrics to a folder (the multiprocess mode of
prometheus_client, set by the variable PROMETHEUS_MULTIPROC_DIR), and the worker that is asked adds
them up.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from queue import Full, Queue

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from coldhash.recommender.results import Row

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
MAX_LINES = 10_000  # lines that wait to be written
BATCH_SECONDS = 0.02  # between the first line of a batch and its writing
STDERR = 2

Entry = dict[str, object]
Log = Callable[[Entry], object]  # returns False if the entry was dropped


class LogWriter:
    """Write entries as JSON lines to a file descriptor without ever blocking the caller.

    Entries wait in a queue. While nobody reads the other end, up to `max_lines` of them wait;
    further ones are dropped, and a later line reports their number.
    """

    def __init__(self, fd: int = STDERR, max_lines: int = MAX_LINES) -> None:
        self._fd = fd
        self._lines: Queue[bytes] = Queue(max_lines)
        self._n_dropped = 0
        self._start = threading.Lock()
        self._pid = 0  # of the process whose thread writes: a fork does not copy threads

    def __call__(self, entry: Entry) -> bool:
        """Queue an entry; return False if it was dropped."""
        try:
            self._lines.put_nowait(orjson.dumps(entry) + b"\n")
        except Full:
            self._n_dropped += 1
            return False
        with self._start:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                threading.Thread(target=self._write, daemon=True, name="coldhash-log").start()
                atexit.register(self.flush)
        return True

    def flush(self, seconds: float = 1.0) -> None:
        """Wait until all lines are written, but not longer than `seconds`."""
        until = time.monotonic() + seconds
        while self._lines.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.001)

    def _write(self) -> None:
        """Write lines in batches, and how many were dropped when there are no more.

        A batch is at most what a pipe takes in one piece, so that lines of several processes do
        not mix.
        """
        n_reported = 0
        while True:
            batch = self._lines.get()
            time.sleep(BATCH_SECONDS)
            while not self._lines.empty():
                line = self._lines.get()
                if len(batch + line) > select.PIPE_BUF:
                    self._write_batch(batch, batch.count(b"\n"))
                    batch = b""
                batch += line
            self._write_batch(batch, batch.count(b"\n"))
            if count := self._n_dropped - n_reported:
                n_reported += count
                dropped = event("log lines dropped", count=count)
                self._write_batch(orjson.dumps(dropped) + b"\n", n_queued=0)

    def _write_batch(self, batch: bytes, n_queued: int) -> None:
        try:
            while batch:
                batch = batch[os.write(self._fd, batch) :]
        except OSError:  # the reader is gone: answers do not depend on the log
            self._n_dropped += n_queued
        for _ in range(n_queued):
            self._lines.task_done()


to_stderr = LogWriter()


def event(name: str, **details: object) -> Entry:
    """Return an entry about the server itself."""
    return {"time": utc_now(), "event": name, **details}


def utc_now() -> str:
    """Return the time in the format of the log."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class JsonHandler(logging.Handler):
    """Log records of other libraries, without tracebacks: they may hold parts of requests."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        entry = event("server", message=record.getMessage())
        if record.exc_info and record.exc_info[0] is not None:
            entry["error"] = record.exc_info[0].__name__
        to_stderr(entry)


def redirect_loggers() -> None:
    """Send the records of uvicorn and asyncio to the log."""
    for name in ("uvicorn", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [JsonHandler()]
        logger.propagate = False


class Metrics:
    """The metrics of one app, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()

        def count(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"coldhash_{name}", text, labels, registry=self._registry)

        self.requests = count("requests", "Requests.", "route", "method", "status")
        self.strangers = count("strangers", "Strangers recommended to.")
        self.fallbacks = count("fallbacks", "Strangers of whom nothing usable was known.")
        self.missing = count("missing_groups", "Strangers without a group of features.", "group")
        self.swaps = count("model_swaps", "New model files.", "result")
        self.dropped = count("log_dropped", "Log lines that were dropped.")
        self.seconds = Histogram(
            "coldhash_request_seconds", "Time to answer.", ["route"], buckets=BUCKETS,
            registry=self._registry,
        )  # fmt: skip
        self.serving = Gauge(
            "coldhash_model_workers", "Workers that serve a version of the model.",
            ["version", "method"], multiprocess_mode="livesum", registry=self._registry,
        )  # fmt: skip
        for result in ("ok", "refused"):
            self.swaps.labels(result)  # a rate needs a zero to start from

    def count_strangers(self, answers: Iterable[Row]) -> None:
        """Count answers to strangers, and what was not known of them."""
        for answer in answers:
            self.strangers.inc()
            if answer["fallback"]:
                self.fallbacks.inc()
            for group, share in answer["weights"].items():
                if share == 0:
                    self.missing.labels(group).inc()

    def text(self) -> bytes:
        """Return the metrics of all workers in the text format of Prometheus."""
        registry = self._registry
        if FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
