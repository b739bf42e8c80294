"""Matrix products in which no row depends on another.

Each row is summed in one fixed order, so a row is the same bit for bit at any number of threads and
among any other rows: a person's vector must not depend on who else is in the batch, and BLAS rounds
differently for one row than for many.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from coldhash.arrays.startup import prefer_numpy

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from coldhash.arrays.rows import SparseRows

_ROW_COST = 1024  # operations that NumPy could do in the time in which it adds one short row
_FEW_ROWS = 64  # for so few, starting threads costs more than they save
# numba's threads serve one caller at a time (without OpenMP, a second one ends the process);
# others run on one thread, with the same result
_threads = threading.Lock()


def times(A: np.ndarray | csr_array | SparseRows, B: np.ndarray) -> np.ndarray:
    """Multiply a sparse (CSR) or dense matrix by a dense one, in B's precision."""
    B = np.ascontiguousarray(B)
    if A.shape[1] != B.shape[0]:  # compiled code would read past the end
        raise ValueError(f"{A.shape} does not fit {B.shape}")
    product = np.zeros((A.shape[0], B.shape[1]), dtype=B.dtype)
    n_numbers = A.size if isinstance(A, np.ndarray) else len(A.indices)
    if prefer_numpy(n_numbers * _ROW_COST):
        return _add_rows(A, B, product)
    many = A.shape[0] > _FEW_ROWS and _threads.acquire(blocking=False)
    run = _kernel(isinstance(A, np.ndarray), many)
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


@cache
def _kernel(dense: bool, many: bool) -> Callable[..., None]:
    """Import the compiled functions, and numba with them, when they are first called."""
    from coldhash.arrays import kernels

    kernel = kernels.multiply_dense if dense else kernels.multiply_sparse
    run: Callable[..., None] = kernel if many else kernel.on_one_thread()
    return run


def _add_rows(A: np.ndarray | csr_array | SparseRows, B: np.ndarray, P: np.ndarray) -> np.ndarray:
    """Add the products of rows to P in the order in which compiled code does."""
    if isinstance(A, np.ndarray):
        for row, column in np.argwhere(A):
            P[row] += A[row, column] * B[column]
    else:
        for row, (start, end) in enumerate(pairwise(A.indptr.tolist())):
            for entry in range(start, end):
                P[row] += A.data[entry] * B[A.indices[entry]]
    return P


def even_order(indptr: np.ndarray) -> np.ndarray:
    """Order rows so that every stretch of them holds about the same number of entries.

    Rows are ranked by size and ordered by the golden ratio, which spreads any ranking evenly.
    """
    by_size = np.argsort(-np.diff(indptr), kind="stable")
    golden = (np.arange(len(by_size)) * 0.6180339887498949) % 1
    return by_size[np.argsort(golden, kind="stable")]
