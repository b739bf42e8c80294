"""Matrix products in which no row depends on another.

Each row is summed in one fixed order, so a row is the same bit for bit at any number of threads and
among any other rows: a person's vector must not depend on who else is in the batch, and BLAS rounds
differently for one row than for many.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from coldhash.arrays import prefer_numpy
from coldhash.arrays.codes import unpack
from coldhash.arrays.threads import run_rows

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from coldhash.arrays.rows import SparseRows

_KERNELS = "coldhash.arrays.kernels"
_ROW_COST = 1024  # operations that NumPy could do in the time in which it adds one short row


def times(A: np.ndarray | csr_array | SparseRows, B: np.ndarray) -> np.ndarray:
    """Multiply a sparse (CSR) or dense matrix by a dense one, in B's precision."""
    B = _read_only(np.ascontiguousarray(B))
    product = _empty_product(A, B, B.shape[1], B.dtype)
    n_numbers = A.size if isinstance(A, np.ndarray) else len(A.indices)
    if prefer_numpy(_KERNELS, n_numbers * _ROW_COST):
        return _add_rows(A, B, product)
    from coldhash.arrays import kernels  # and numba with them

    if isinstance(A, np.ndarray):
        A, steps = _read_only(A), np.arange(len(A) + 1)
        run_rows(kernels.multiply_dense, steps, A, B, product)
        return product
    run_rows(kernels.multiply_sparse, A.indptr, *_rows_of(A), B, product)
    return product


def times_codes(
    A: np.ndarray | csr_array | SparseRows, words: np.ndarray, weights: np.ndarray, n_bits: int
) -> np.ndarray:
    """Multiply a matrix by packed codes, each of them times a weight, in single precision.

    The same numbers as `times(A, unpack(words, n_bits) * weights)`. An entry of a sparse A reads 8
    bytes for 64 bits of a code instead of 256: the codes of a large catalogue stay in the cache.
    """
    if isinstance(A, np.ndarray):
        return times(A, unpack(words, n_bits) * weights[:, None])
    product = _empty_product(A, words, n_bits, np.dtype(np.float32))
    if prefer_numpy(_KERNELS, len(A.indices) * _ROW_COST):
        values = (A.data * weights[A.indices])[:, None] * unpack(words[A.indices], n_bits)
        for row, (start, end) in enumerate(pairwise(A.indptr.tolist())):
            for entry in range(start, end):
                product[row] += values[entry]
        return product
    from coldhash.arrays import kernels

    codes = (_read_only(words), _read_only(weights))
    run_rows(kernels.multiply_codes, A.indptr, *_rows_of(A), *codes, product)
    return product


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


def _empty_product(
    A: np.ndarray | csr_array | SparseRows, B: np.ndarray, n: int, dtype: np.dtype
) -> np.ndarray:
    if A.shape[1] != B.shape[0]:  # compiled code would read past the end
        raise ValueError(f"{A.shape} does not fit {B.shape}")
    return np.zeros((A.shape[0], n), dtype=dtype)


def _rows_of(A: csr_array | SparseRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the arrays of a matrix, with indices of one type."""
    index = np.int32 if len(A.data) < 2**31 else np.int64
    indptr, indices = A.indptr.astype(index, copy=False), A.indices.astype(index, copy=False)
    return _read_only(indptr), _read_only(indices), _read_only(A.data)


def _read_only(array: np.ndarray) -> np.ndarray:
    """Return a view that cannot be written to: what may and what may not are compiled apart."""
    view = array.view()
    view.flags.writeable = False
    return view
