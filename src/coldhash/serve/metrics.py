"""What the service counts, for Prometheus.

Where several workers share the work, each writes its figures to a folder (prometheus_client's
multiprocess mode, by the variable PROMETHEUS_MULTIPROC_DIR), and whichever worker is asked adds
them up.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """Counters of one app, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        here: dict[str, Any] = {"registry": self._registry}
        self.seconds = Histogram(
            "coldhash_request_seconds", "Time to answer.", ["route"], buckets=SECONDS, **here
        )
        self.requests = Counter(
            "coldhash_requests", "Requests.", ["route", "method", "status"], **here
        )
        self.answers = Counter("coldhash_strangers", "Strangers recommended to.", **here)
        self.fallbacks = Counter(
            "coldhash_fallbacks", "Strangers of whom nothing usable was known.", **here
        )
        self.missing = Counter(
            "coldhash_missing_groups", "Strangers without a group of features.", ["group"], **here
        )
        self.swaps = Counter("coldhash_model_swaps", "New model files.", ["result"], **here)
        self.dropped = Counter("coldhash_log_dropped", "Lines the log had no room for.", **here)
        self.serving = Gauge(
            "coldhash_model_workers",
            "Workers that serve a version of the model.",
            ["version", "method"],
            multiprocess_mode="livesum",
            **here,
        )
        for result in ("ok", "refused"):
            self.swaps.labels(result)  # a rate needs a zero to start from

    def count_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request."""
        self.seconds.labels(route).observe(seconds)
        self.requests.labels(route, method, status).inc()

    def count_answers(self, answers: Sequence[dict[str, Any]]) -> None:
        """Count what strangers got, and what was not known of them."""
        self.answers.inc(len(answers))
        for answer in answers:
            if answer["fallback"]:
                self.fallbacks.inc()
            for group, share in answer["weights"].items():
                if share == 0:
                    self.missing.labels(group).inc()

    def serve(self, version: str, method: str, before: tuple[str, str] | None = None) -> None:
        """Note which model is served now."""
        if before is not None:
            self.serving.labels(*before).set(0)
        self.serving.labels(version, method).set(1)

    def text(self) -> bytes:
        """Give all figures, of all workers."""
        if FOLDER not in os.environ:
            return generate_latest(self._registry)
        everybody = CollectorRegistry()
        MultiProcessCollector(everybody)  # type: ignore[no-untyped-call]
        return generate_latest(everybody)
