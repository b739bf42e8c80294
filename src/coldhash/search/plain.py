"""The layout of codes, and the scan in NumPy, for a process that asks only once.

The scan computes all scores, as `kernels.py` defines them, and returns the same bits.
"""

from __future__ import annotations

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


def weighted_distances(query: np.ndarray, stripes: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Compute the weighted distances of all positions to a real query, its unit and its half."""
    n_bytes = stripes.shape[1]
    values = np.pad(query.astype(np.float64), (0, 8 * n_bytes - len(query)))
    weights = np.abs(values)
    first, second, third, fourth = weights.reshape(-1, 4).T
    heaviest = (first + second + third + fourth).max()
    unit = heaviest / WEIGHT_LIMIT if heaviest > 0 else 1.0
    weights = np.floor(weights / unit + 0.5)
    codes = stripes.transpose(0, 2, 1).reshape(-1, n_bytes)
    bits = np.unpackbits(codes, axis=1, bitorder="little").astype(np.float64)
    # whole numbers below 2^53, whose sums are exact in any order
    distances = bits @ np.where(values < 0, weights, -weights) + weights[values >= 0].sum()
    return distances, unit, weights.sum() / 2


def hamming_distances(words: np.ndarray, stripes: np.ndarray) -> np.ndarray:
    """Compute the Hamming distances of all positions to a packed query."""
    query = words.astype("<u8").view(np.uint8)[: stripes.shape[1]]
    differing = np.bitwise_count(stripes ^ query[:, None])
    return np.asarray(differing.sum(axis=1, dtype=np.int64).ravel())
