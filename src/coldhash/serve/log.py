"""The log: JSON lines on stderr, written by a thread of its own."""

from __future__ import annotations

import atexit
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

import orjson

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
