"""Matrix products in which no row depends on another.

Each row is summed in one fixed order, so a row is the same bit for bit at any number of threads and
among any other rows: a person's vector must not depend on who else is in the batch, and BLAS rounds
differently for one row than for many.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.codes import unpack
from coldhash.arrays.compiled import compiled
from coldhash.arrays.threads import run_rows


def times(A: np.ndarray | csr_array, B: np.ndarray) -> np.ndarray:
    """Multiply a sparse (CSR) or dense matrix by a dense one, in B's precision."""
    B = _read_only(np.ascontiguousarray(B))
    product = _empty_product(A, B, B.shape[1], B.dtype)
    if isinstance(A, np.ndarray):
        A, steps = _read_only(A), np.arange(len(A) + 1)
        run_rows(lambda first, last: _multiply_dense(A, B, product, first, last), steps)
        return product
    rows = _rows_of(A)
    run_rows(lambda first, last: _multiply_sparse(*rows, B, product, first, last), A.indptr)
    return product


def times_codes(
    A: np.ndarray | csr_array, words: np.ndarray, weights: np.ndarray, n_bits: int
) -> np.ndarray:
    """Multiply a matrix by packed codes, each of them times a weight, in single precision.

    The same numbers as `times(A, unpack(words, n_bits) * weights)`. An entry of a sparse A reads 8
    bytes for 64 bits of a code instead of 256: the codes of a large catalogue stay in the cache.
    """
    if isinstance(A, np.ndarray):
        return times(A, unpack(words, n_bits) * weights[:, None])
    product = _empty_product(A, words, n_bits, np.dtype(np.float32))
    rows, words, weights = _rows_of(A), _read_only(words), _read_only(weights)
    run_rows(
        lambda first, last: _multiply_codes(*rows, words, weights, product, first, last), A.indptr
    )
    return product


def even_order(indptr: np.ndarray) -> np.ndarray:
    """Order rows so that every stretch of them holds about the same number of entries.

    Rows are ranked by size and ordered by the golden ratio, which spreads any ranking evenly.
    """
    by_size = np.argsort(-np.diff(indptr), kind="stable")
    golden = (np.arange(len(by_size)) * 0.6180339887498949) % 1
    return by_size[np.argsort(golden, kind="stable")]


def _empty_product(A: np.ndarray | csr_array, B: np.ndarray, n: int, dtype: np.dtype) -> np.ndarray:
    if A.shape[1] != B.shape[0]:  # compiled code would read past the end
        raise ValueError(f"{A.shape} does not fit {B.shape}")
    return np.zeros((A.shape[0], n), dtype=dtype)


def _rows_of(A: csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the arrays of a matrix, with indices of one type."""
    index = np.int32 if len(A.data) < 2**31 else np.int64
    indptr, indices = A.indptr.astype(index, copy=False), A.indices.astype(index, copy=False)
    return _read_only(indptr), _read_only(indices), _read_only(A.data)


def _read_only(array: np.ndarray) -> np.ndarray:
    """Return a view that cannot be written to: what may and what may not are compiled apart."""
    view = array.view()
    view.flags.writeable = False
    return view


@compiled(nogil=True)
def _multiply_sparse(indptr, indices, values, B, product, first, last):  # type: ignore[no-untyped-def]
    width = B.shape[1]
    total = np.empty(width, B.dtype)
    for row in range(first, last):
        total[:] = 0
        for j in range(indptr[row], indptr[row + 1]):
            value, at = values[j], np.uint64(indices[j])
            for k in range(width):
                total[k] += value * B[at, k]
        product[row] = total


@compiled(nogil=True)
def _multiply_codes(indptr, indices, values, words, weights, product, first, last):  # type: ignore[no-untyped-def]
    n_bits = product.shape[1]
    total = np.empty(64, np.float32)
    for word in range(words.shape[1]):
        begin = 64 * word
        for row in range(first, last):
            total[:] = 0
            for j in range(indptr[row], indptr[row + 1]):
                at = np.uint64(indices[j])
                value, code = values[j] * weights[at], words[at, word]
                for k in range(64):
                    total[k] += value if (code >> np.uint64(k)) & np.uint64(1) else -value
            for k in range(min(64, n_bits - begin)):
                product[row, begin + k] = total[k]


@compiled(nogil=True)
def _multiply_dense(A, B, product, first, last):  # type: ignore[no-untyped-def]
    for row in range(first, last):
        for j in range(A.shape[1]):
            value = A[row, j]
            if value != 0:  # features are mostly zeros
                for k in range(B.shape[1]):
                    product[row, k] += value * B[j, k]
