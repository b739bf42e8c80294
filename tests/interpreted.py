"""The vector code of the search as plain Python, for runs in which nothing is compiled.

LLVM code cannot be interpreted, so where numba is switched off (NUMBA_DISABLE_JIT=1: coverage and
mutation) these stand in for it, and every other line of the search runs as it is written.
"""

from __future__ import annotations

import numpy as np

from coldhash.search import kernels


def use_plain_lanes() -> None:
    kernels.sum_lanes = sum_lanes
    kernels.lowest_bit = lowest_bit
    kernels.COUNTS_BITS = False
    kernels.allocate = lambda forms: tuple(np.empty(sizes, dtype) for dtype, *sizes in forms)
    kernels.release = lambda first: None


def sum_lanes(tile, n_sum_bytes, stripes, group, rounded, first, limits, out, hits):
    """Distances of a group of 64 items to `tile` queries, and who is below the limits."""
    codes = stripes[group]
    halves = np.stack([codes & 15, codes >> 4], axis=1).reshape(-1, codes.shape[1])
    each = np.arange(len(halves))[:, None]
    some = 0
    for query in range(tile):
        if first + query < len(rounded):
            out[query] = rounded[first + query][each, halves].sum(axis=0)
        below = out[query] < limits[query] % (1 << 8 * n_sum_bytes)
        hits[query] = np.packbits(below, bitorder="little").view(np.uint64)[0]
        some |= int(hits[query])
    return some


def lowest_bit(mask):
    return (int(mask) & -int(mask)).bit_length() - 1
