"""Metrics of the service, for Prometheus.

With several workers, each writes its figures to a folder (the multiprocess mode of
prometheus_client, set by the variable PROMETHEUS_MULTIPROC_DIR), and the worker that is asked adds
them up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from coldhash.recommender.results import Row

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


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
