"""What a fit says about itself: codes, bits, group weights, objective and times."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from coldhash.arrays.codes import pack, signs
from coldhash.errors import CodeCollapse

Callback = Callable[[int, float], None]  # called with the round, from 0, and the objective after it

COLLAPSED = 0.05  # distinct codes per distinct profile
REPORTED = 50_000  # entities that a report looks at


class Progress:
    """Seconds by step, and the objective after every round."""

    def __init__(self, callback: Callback | None) -> None:
        self.seconds: dict[str, float] = {}
        self.objective: list[float] = []
        self._callback, self._last = callback, time.perf_counter()

    def mark(self, step: str) -> None:
        """Book the time since the last mark on a step."""
        now = time.perf_counter()
        self.seconds[step] = self.seconds.get(step, 0.0) + now - self._last
        self._last = now

    def end_round(self) -> None:
        """Pass the last objective to the callback."""
        if self._callback is not None:
            self._callback(len(self.objective) - 1, self.objective[-1])


def code_report(vectors: np.ndarray) -> dict[str, Any]:
    """Describe the codes of vectors: how many differ, how balanced and how alike the bits are."""
    codes = signs(vectors[:REPORTED], np.float32)
    mean, n_bits = codes.mean(axis=0, dtype=np.float64), codes.shape[1]
    # sums of +1 and -1 are exact in float32, so they do not depend on the order of the product
    covariance = (codes.T @ codes).astype(np.float64) / max(len(codes), 1) - np.outer(mean, mean)
    spread = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    correlation = np.abs(covariance / np.outer(spread, spread))
    others = correlation.sum() - np.trace(correlation)
    return {
        "distinct": n_distinct(pack(codes)),
        "of": len(codes),
        "mean_imbalance": float(np.abs(mean).mean()),
        "mean_correlation": float(others / max(n_bits * (n_bits - 1), 1)),
    }


def n_distinct(rows: np.ndarray) -> int:
    """Count the rows that differ."""
    rows = np.ascontiguousarray(rows)
    return len(set(rows.view(f"V{rows.strides[0]}").ravel().tolist()))


def warn_of_collapse(stranger_vectors: np.ndarray) -> str | None:
    """Warn if people who differ get the same code: by Hamming they get the same list."""
    profiles = n_distinct(stranger_vectors[:REPORTED])
    distinct = n_distinct(pack(signs(stranger_vectors[:REPORTED])))
    if profiles < 20 or distinct >= COLLAPSED * profiles:
        return None
    message = (
        f"{profiles:,} different profiles of strangers have only {distinct:,} codes; "
        "hint: score='real' tells them apart, or use more bits"
    )
    warnings.warn(message, CodeCollapse, stacklevel=5)
    return message
