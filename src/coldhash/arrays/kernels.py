"""The compiled functions behind products and features: imported when they are first called."""

from __future__ import annotations

import numpy as np
from numba import prange

from coldhash.arrays.compiled import compiled


@compiled(nogil=True)
def _sparse_row(indices, values, B, total):  # type: ignore[no-untyped-def]
    for j in range(len(indices)):
        value = values[j]
        other = B[indices[j]]
        for k in range(len(total)):
            total[k] += value * other[k]


@compiled(nogil=True)
def _dense_row(values, B, total):  # type: ignore[no-untyped-def]
    for j in range(len(values)):
        value = values[j]
        if value != 0:  # features are mostly zeros
            for k in range(len(total)):
                total[k] += value * B[j, k]


@compiled(parallel=True)
def multiply_sparse(indptr, indices, values, B, order, product):  # type: ignore[no-untyped-def]
    """Compute the rows of a sparse matrix times B, in some order."""
    for position in prange(len(order)):
        row = order[position]
        start, end = indptr[row], indptr[row + 1]
        _sparse_row(indices[start:end], values[start:end], B, product[row])


@compiled(parallel=True)
def multiply_dense(A, B, product):  # type: ignore[no-untyped-def]
    """Compute the rows of a dense matrix times B."""
    for row in prange(len(product)):
        _dense_row(A[row], B, product[row])


@compiled(nogil=True)
def add_cells(block, codes, starts, places, numbers):  # type: ignore[no-untyped-def]
    """Add the numbers of each row; returns which rows have any."""
    known = np.zeros(len(codes), np.bool_)
    for row in range(len(codes)):
        begin, end = starts[codes[row]], starts[codes[row] + 1]
        known[row] = end > begin
        for entry in range(begin, end):
            block[row, places[entry]] += numbers[entry]
    return known
