"""Metrics from ranks with ties.

A test pair is a favourite item ranked alone against a user's candidates. All that matters of it are
two numbers: `greater`, how many candidates score higher, and `equal`, how many score the same. If
ties are broken at random, the favourite stands at each of the places greater + 1 .. greater + equal
+ 1 with the same chance, so it is among the first k with chance

    clip((k - greater) / (equal + 1), 0, 1).

Counting ties as hits ("optimistic") makes a constant score perfect; counting them as misses
("pessimistic") punishes codes for being short. Both are given beside the expected value.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from coldhash.errors import SettingError

Ties = Literal["expected", "optimistic", "pessimistic"]


def hits_at(k: int, greater: np.ndarray, equal: np.ndarray, ties: Ties = "expected") -> np.ndarray:
    """Give the chance that each favourite is among the first k."""
    if k < 1:
        raise SettingError(f"k={k}", hint="at least 1")
    if ties == "expected":
        return np.asarray(np.clip((k - greater) / (equal + 1), 0.0, 1.0))
    if ties == "optimistic":
        return np.asarray(greater < k, dtype=np.float64)
    if ties == "pessimistic":
        return np.asarray(greater + equal < k, dtype=np.float64)
    raise SettingError(f"ties={ties!r}", hint=f"one of {', '.join(get_args(Ties))}")


def accuracy_at(k: int, greater: np.ndarray, equal: np.ndarray, ties: Ties = "expected") -> float:
    """Accuracy@k: the share of hits among all test pairs, pooled over users.

    Examples
    --------
    >>> accuracy_at(1, np.array([0, 3]), np.array([0, 0]))  # one favourite first, one fourth
    0.5
    >>> accuracy_at(10, np.zeros(5), np.full(5, 1000.0))  # a constant score: k / 1001
    0.00999000999000999
    """
    if not len(greater):
        return float("nan")
    return float(hits_at(k, greater, equal, ties).mean())
