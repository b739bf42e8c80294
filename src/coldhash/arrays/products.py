"""Matrix products in which no row depends on another.

Each row is summed in one fixed order, so a row is the same bit for bit at any number of threads and
among any other rows: a person's vector must not depend on who else is in the batch, and BLAS rounds
differently for one row than for many.
"""

from __future__ import annotations

import threading

import numpy as np
from numba import prange
from scipy.sparse import csr_array

from coldhash.arrays.compiled import compiled

_FEW_ROWS = 64  # for so few, starting threads costs more than they save
# numba's threads serve one caller at a time (without OpenMP, a second one ends the process);
# others run on one thread, with the same result
_threads = threading.Lock()


def times(A: np.ndarray | csr_array, B: np.ndarray) -> np.ndarray:
    """Multiply a sparse (CSR) or dense matrix by a dense one, in B's precision."""
    B = np.ascontiguousarray(B)
    if A.shape[1] != B.shape[0]:  # compiled code would read past the end
        raise ValueError(f"{A.shape} does not fit {B.shape}")
    product = np.zeros((A.shape[0], B.shape[1]), dtype=B.dtype)
    many = A.shape[0] > _FEW_ROWS and _threads.acquire(blocking=False)
    kernel = _multiply_dense if isinstance(A, np.ndarray) else _multiply_sparse
    run = kernel if many else kernel.on_one_thread()
    try:
        if isinstance(A, np.ndarray):
            run(A, B, product)
        else:
            order = even_order(A.indptr) if many else np.arange(A.shape[0])
            run(A.indptr, A.indices, A.data, B, order, product)
    finally:
        if many:
            _threads.release()
    return product


def even_order(indptr: np.ndarray) -> np.ndarray:
    """Order rows so that every stretch of them holds about the same number of entries.

    Rows are ranked by size and ordered by the golden ratio, which spreads any ranking evenly.
    """
    by_size = np.argsort(-np.diff(indptr), kind="stable")
    golden = (np.arange(len(by_size)) * 0.6180339887498949) % 1
    return by_size[np.argsort(golden, kind="stable")]


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
def _multiply_sparse(indptr, indices, values, B, order, product):  # type: ignore[no-untyped-def]
    for position in prange(len(order)):
        row = order[position]
        start, end = indptr[row], indptr[row + 1]
        _sparse_row(indices[start:end], values[start:end], B, product[row])


@compiled(parallel=True)
def _multiply_dense(A, B, product):  # type: ignore[no-untyped-def]
    for row in prange(len(product)):
        _dense_row(A[row], B, product[row])
