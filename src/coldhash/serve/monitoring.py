"""The log (JSON lines on stderr, written by a thread of its own) and the metrics for Prometheus.

With several workers, each writes its metrics to a folder (the multiprocess mode of
prometheus_client, set by the variable PROMETHEUS_MULTIPROC_DIR), and the worker that is asked adds
them up.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import select
import time
from collections import Counter as Counts
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from queue import SimpleQueue
from threading import Event, Thread

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from coldhash.serve.registry import PersonAnswer, ServedModel

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
    further ones are dropped.
    """

    def __init__(self, fd: int = STDERR, max_lines: int = MAX_LINES) -> None:
        self._fd = fd
        self._max_lines = max_lines
        self._entries: SimpleQueue[Entry | Event] = SimpleQueue()
        self._thread = Thread()  # none yet

    def __call__(self, entry: Entry) -> bool:
        """Queue an entry; return False if it was dropped."""
        if self._entries.qsize() >= self._max_lines:
            return False
        self._entries.put(entry)
        if not self._thread.is_alive():  # at the first entry, also after a fork
            self._thread = Thread(target=self._write, daemon=True, name="coldhash-log")
            self._thread.start()
            atexit.register(self.flush)
        return True

    def flush(self, seconds: float = 1.0) -> None:
        """Wait until all lines are written, but not longer than `seconds`."""
        written = Event()
        self._entries.put(written)
        if self._thread.is_alive():
            written.wait(seconds)

    def _write(self) -> None:
        """Write what is in the queue, again and again.

        A batch is at most what a pipe takes in one piece, so that lines of several processes do
        not mix.
        """
        batch = b""
        while True:
            entry = self._entries.get()
            if not batch:
                time.sleep(BATCH_SECONDS)
            line = b"" if isinstance(entry, Event) else _as_line(entry)
            if len(batch) + len(line) > select.PIPE_BUF:
                batch = self._send(batch)
            batch += line
            if not line or self._entries.empty():
                batch = self._send(batch)
            if isinstance(entry, Event):
                entry.set()

    def _send(self, batch: bytes) -> bytes:
        """Write lines; return no lines, the next batch."""
        with suppress(OSError):  # the reader is gone: answers do not depend on the log
            while batch:
                batch = batch[os.write(self._fd, batch) :]
        return b""


def _as_line(entry: Entry) -> bytes:
    try:
        return orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # a lone surrogate, as in the name of a file that is not UTF-8
        return json.dumps(entry).encode() + b"\n"


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


class Metrics:
    """The metrics of one app, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()

        def count(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"coldhash_{name}", text, labels, registry=registry)

        requests = count("requests", "Requests.", "route", "method", "status")
        self.requests = cache(requests.labels)  # `labels` takes longer than the counting
        self.strangers = count("strangers", "Strangers recommended to.")
        self.fallbacks = count("fallbacks", "Strangers of whom nothing usable was known.")
        missing = count("missing_groups", "Strangers without a group of features.", "group")
        self.missing = cache(missing.labels)
        self.swaps = count("model_swaps", "New model files.", "result")
        self.dropped = count("log_dropped", "Log lines that were dropped.")
        about = ("request_seconds", "Time to answer.", ["route"], "coldhash")
        seconds = Histogram(*about, registry=registry, buckets=BUCKETS)
        self.seconds = cache(seconds.labels)
        self._workers = Gauge(
            "coldhash_model_workers", "Workers that serve a version of the model.",
            ["version", "method"], multiprocess_mode="livesum", registry=registry,
        )  # fmt: skip
        for result in ("ok", "refused"):
            self.swaps.labels(result)  # a rate needs a zero to start from

    def count(self, answers: Sequence[PersonAnswer]) -> None:
        """Count answers to strangers, and what was not known of them."""
        strangers = [answer for answer in answers if not answer.is_known]
        self.strangers.inc(len(strangers))
        self.fallbacks.inc(sum(answer.fallback for answer in strangers))
        missing = Counts(chain.from_iterable(answer.missing for answer in strangers))
        for group, n_strangers in missing.items():
            self.missing(group).inc(n_strangers)

    def count_workers(self, served: ServedModel, n_workers: int) -> None:
        """Set how many workers serve a model: this one, or none."""
        self._workers.labels(served.version, served.model.name).set(n_workers)

    def text(self) -> bytes:
        """Return the metrics of all workers in the text format of Prometheus."""
        registry = self._registry
        if FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
