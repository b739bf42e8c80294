"""The layout of codes, and the scan in NumPy, for a process that asks only once.

The scan computes all scores, as `kernels.py` defines them, and returns the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

GROUP = 64  # items per group: two 256-bit registers of byte lanes
TILE = 4  # queries summed together: their sums just fill the registers
ROUNDING = 15  # bits dropped from exact table entries in the rounded tables
WEIGHT_LIMIT = 127.5 * (1 << ROUNDING)  # heaviest half byte: 7 bits rounded, two fit a byte


def stripe(packed: np.ndarray, n_bits: int) -> np.ndarray:
    """Store packed codes, in tie order, as groups of 64, byte by byte."""
    n_bytes = -(-n_bits // 8)
    rows = np.ascontiguousarray(packed).astype("<u8", copy=False).view(np.uint8)[:, :n_bytes]
    rows = np.pad(rows, ((0, -len(packed) % GROUP), (0, 0)))
    return np.ascontiguousarray(rows.reshape(-1, GROUP, n_bytes).transpose(0, 2, 1))


def search(
    codes: np.ndarray,
    reals: np.ndarray,
    rows: np.ndarray,
    distances: np.ndarray,
    scores: np.ndarray,
    stripes: np.ndarray,
    order: np.ndarray,
    levels: np.ndarray,
    worth: np.ndarray,
    allowed: np.ndarray,
    *rest: Any,
) -> None:
    """Find the best items of queries, as `kernels.search` does with the same arguments."""
    skip, skipped, only, chosen, *_ = rest
    n_items, by_code = len(order), len(codes) > 0
    weights, units = _code_weights(codes, stripes) if by_code else _real_weights(reals, stripes)
    as_bytes = stripes.transpose(0, 2, 1).reshape(-1, stripes.shape[1])[:n_items]
    bits = np.unpackbits(as_bytes, axis=1, bitorder="little").astype(np.float64)
    # whole numbers below 2^53, whose sums are exact in any order
    sums = np.maximum(weights, 0).sum(axis=1, keepdims=True) - weights @ bits.T
    bases, gains = worth[:, levels if len(levels) else 0, None].reshape(2, -1)
    if by_code:
        costs, values, missing = sums - bases, distances, -1.0
    else:
        halves = np.abs(weights).sum(axis=1, keepdims=True) / 2
        costs, values, missing = -gains * (bases + 2 * units * (halves - sums)), scores, -np.inf
    rows[:], values[:] = -1, missing
    for query in range(len(rows)):
        usable = np.unpackbits(allowed.astype("<u8").view(np.uint8), bitorder="little")[:n_items]
        if len(only):
            usable[:] = 0
            usable[chosen[only[query] : only[query + 1]]] = 1
        if len(skip):
            usable[skipped[skip[query] : skip[query + 1]]] = 0
        positions = np.flatnonzero(usable)
        best = positions[np.argsort(costs[query, positions], kind="stable")[: rows.shape[1]]]
        rows[query, : len(best)] = order[best]
        values[query, : len(best)] = costs[query, best] if by_code else -costs[query, best]


def _code_weights(codes: np.ndarray, stripes: np.ndarray) -> tuple[np.ndarray, float]:
    """Return 1 or -1 for each bit of packed queries, and the unit of these."""
    as_bytes = codes.astype("<u8").view(np.uint8)[:, : stripes.shape[1]]
    return np.unpackbits(as_bytes, axis=1, bitorder="little") * 2.0 - 1.0, 1.0


def _real_weights(reals: np.ndarray, stripes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return whole numbers for each bit of real queries, with their signs, and the units."""
    missing = 8 * stripes.shape[1] - reals.shape[1]
    values = np.pad(reals.astype(np.float64), ((0, 0), (0, missing)))
    first, second, third, fourth = np.moveaxis(np.abs(values).reshape(len(values), -1, 4), 2, 0)
    heaviest = (first + second + third + fourth).max(axis=1, keepdims=True)
    units = np.where(heaviest > 0, heaviest / WEIGHT_LIMIT, 1.0)
    return np.copysign(np.floor(np.abs(values) / units + 0.5), values), units
