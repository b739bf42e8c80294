"""Sparse times dense, rows in parallel.

Each row is summed in one fixed order, so the result is the same bit for bit at any number of
threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange
from scipy.sparse import csr_array


def times(S: csr_array, D: np.ndarray) -> np.ndarray:
    """Multiply a sparse by a dense matrix, rows in parallel."""
    order = even_order(S.indptr)
    return np.asarray(_times(S.indptr, S.indices, S.data, np.ascontiguousarray(D), order))


def even_order(indptr: np.ndarray) -> np.ndarray:
    """Order rows so that every stretch of them holds about the same number of entries.

    Rows are ranked by size and dealt out by the golden ratio, which spreads any ranking evenly.
    """
    by_size = np.argsort(-np.diff(indptr), kind="stable")
    golden = (np.arange(len(by_size)) * 0.6180339887498949) % 1
    return by_size[np.argsort(golden, kind="stable")]


@njit(parallel=True, cache=True)
def _times(indptr, indices, values, D, order):  # type: ignore[no-untyped-def]
    product = np.zeros((len(indptr) - 1, D.shape[1]), dtype=D.dtype)
    for position in prange(len(order)):
        row = order[position]
        total = product[row]
        for j in range(indptr[row], indptr[row + 1]):
            value = values[j]
            other = D[indices[j]]
            for k in range(len(total)):
                total[k] += value * other[k]
    return product
