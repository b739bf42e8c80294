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
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

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
        self._max_lines = max_lines
        self._lines: deque[bytes] = deque()
        self._n_unwritten = 0  # lines in the queue and in the batch that is being written
        self._n_dropped = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._pid = 0  # of the process whose thread writes: a fork does not copy threads

    def __call__(self, entry: Entry) -> bool:
        """Queue an entry; return False if it was dropped."""
        line = orjson.dumps(entry) + b"\n"
        with self._lock:
            if self._n_unwritten >= self._max_lines:
                self._n_dropped += 1
                return False
            self._lines.append(line)
            self._n_unwritten += 1
            if self._pid != os.getpid():
                self._pid = os.getpid()
                threading.Thread(target=self._write, daemon=True, name="coldhash-log").start()
                atexit.register(self.flush)
        if not self._wake.is_set():
            self._wake.set()
        return True

    def flush(self, seconds: float = 1.0) -> None:
        """Wait until all lines are written, but not longer than `seconds`."""
        until = time.monotonic() + seconds
        while self._n_unwritten and time.monotonic() < until:
            time.sleep(0.001)

    def _write(self) -> None:
        while True:
            self._wake.wait()
            time.sleep(BATCH_SECONDS)
            self._wake.clear()
            while self._write_batch():
                pass

    def _write_batch(self) -> bool:
        """Write some lines; return whether there were any.

        A batch is at most what a pipe takes in one piece, so that lines of several processes do
        not mix.
        """
        batch, n_lines = b"", 0
        with self._lock:
            while self._lines and (n_lines == 0 or len(batch + self._lines[0]) <= select.PIPE_BUF):
                batch += self._lines.popleft()
                n_lines += 1
            if n_lines == 0 and self._n_dropped:
                batch = orjson.dumps(event("log lines dropped", count=self._n_dropped)) + b"\n"
                self._n_dropped = 0
        try:
            while batch:
                batch = batch[os.write(self._fd, batch) :]
        except OSError:  # the reader is gone: answers do not depend on the log
            self._n_dropped += n_lines
        with self._lock:
            self._n_unwritten -= n_lines
        return n_lines > 0


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
