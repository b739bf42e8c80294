"""Sparse rows, and matrix products in which no row depends on another.

Each row is summed in one fixed order, so a row is the same bit for bit at any number of threads and
among any other rows: a person's vector must not depend on who else is in the batch, and BLAS rounds
differently for one row than for many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from coldhash.arrays import load_kernels
from coldhash.arrays.codes import unpack
from coldhash.arrays.threads import run_rows
from coldhash.errors import DataError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

KERNELS = "coldhash.arrays.kernels"
LANES = 16  # numbers that compiled code takes at once
ROW_COST = 1024  # operations that NumPy could do in the time in which it adds one short row


@dataclass(frozen=True, eq=False)
class SparseRows:
    """The parts of a CSR matrix, as `scipy.sparse.csr_array` calls them.

    To import scipy.sparse takes as long as hundreds of answers, and to build one of its matrices as
    long as half an answer.
    """

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    shape: tuple[int, int]

    @classmethod
    def of(cls, matrix: csr_array | SparseRows) -> SparseRows:
        """Return the parts of a matrix, not copied."""
        if isinstance(matrix, SparseRows):
            return matrix
        if getattr(matrix, "format", None) != "csr":
            hint = "scipy.sparse.csr_array(...)"
            raise DataError(f"a {type(matrix).__name__} is no matrix of sparse rows", hint=hint)
        return cls(matrix.data, matrix.indices, matrix.indptr, matrix.shape)

    @classmethod
    def of_lists(cls, lists: Sequence[np.ndarray] | np.ndarray, n_columns: int) -> SparseRows:
        """Build from the columns of each row; all values are 1."""
        indptr = np.cumsum([0, *map(len, lists)])
        indices = np.concatenate([np.zeros(0, np.int32), *lists])
        if len(indices) and not 0 <= indices.min() <= indices.max() < n_columns:
            raise DataError(f"a list names rows outside 0 to {n_columns - 1}")
        ones = np.ones(len(indices), np.float32)
        return cls(ones, indices.astype(np.int32, copy=False), indptr, (len(lists), n_columns))

    def select(self, some: np.ndarray) -> SparseRows:
        """Return some of the entries."""
        if len(self.indptr) == 2:  # one row, as of most requests
            indptr = np.array([0, np.count_nonzero(some)])
        else:
            indptr = np.concatenate([[0], np.cumsum(some)])[self.indptr]
        return SparseRows(self.data[some], self.indices[some], indptr, self.shape)

    def rows(self) -> list[SparseRows]:
        """Return each row as a matrix of its own."""
        ends = list(pairwise(self.indptr.tolist()))
        bodies = [(self.data[i:j], self.indices[i:j], np.array([0, j - i])) for i, j in ends]
        return [SparseRows(*body, (1, self.shape[1])) for body in bodies]

    def counts(self) -> np.ndarray:
        """Return the number of entries of each row, for few rows sooner than by `np.diff`."""
        return np.asarray(self.indptr[1:] - self.indptr[:-1])

    def owners(self) -> np.ndarray:
        """Return the row of each entry."""
        return np.repeat(np.arange(self.shape[0]), self.counts())

    def places(self) -> np.ndarray:
        """Return the place of each entry among all numbers of the matrix, row by row."""
        return np.asarray(self.owners() * self.shape[1] + self.indices)


def union(one: SparseRows | None, two: SparseRows | None) -> SparseRows | None:
    """Return ones where either has an entry."""
    if one is None or two is None:
        return two if one is None else one
    pairs = zip(one.rows(), two.rows(), strict=True)
    lists = [np.union1d(own.indices, more.indices) for own, more in pairs]
    return SparseRows.of_lists(lists, one.shape[1])


def times(A: np.ndarray | csr_array | SparseRows, B: np.ndarray) -> np.ndarray:
    """Multiply a sparse (CSR) or dense matrix by a dense one, in B's precision."""
    B = read_only(np.ascontiguousarray(B))
    product = _empty_product(A, B, B.shape[1], B.dtype)
    n_numbers = A.size if isinstance(A, np.ndarray) else len(A.indices)
    kernels = load_kernels(KERNELS, n_numbers * ROW_COST)
    if kernels is None:  # in the order in which compiled code adds
        if isinstance(A, np.ndarray):
            rows, columns = A.nonzero()
            values = A[rows, columns]
        else:
            A = SparseRows.of(A)
            rows, columns, values = A.owners(), A.indices, A.data
        np.add.at(product, rows, values.astype(B.dtype)[:, None] * B[columns])
        return product
    if isinstance(A, np.ndarray):
        run_rows(kernels.multiply_dense, range(len(A) + 1), read_only(A), B, product)
    elif (missing := LANES - B.shape[1]) > 0:
        product[:] = times(A, np.pad(B, ((0, 0), (0, missing))))[:, :-missing]
    else:
        run_rows(kernels.multiply_sparse, A.indptr, *_rows_of(A), B, product)
    return product


def times_codes(
    A: csr_array | SparseRows, words: np.ndarray, weights: np.ndarray, n_bits: int
) -> np.ndarray:
    """Multiply a sparse matrix by packed codes, each of them times a weight, in single precision.

    The same numbers as `times(A, unpack(words, n_bits) * weights)`. An entry of A reads 8 bytes for
    64 bits of a code instead of 256: the codes of a large catalogue stay in the cache.
    """
    kernels = load_kernels(KERNELS, len(A.indices) * ROW_COST)
    if kernels is None:
        B = unpack(words[A.indices], n_bits) * weights[A.indices, None]
        shape = (A.shape[0], len(B))
        return times(SparseRows(A.data, np.arange(len(B)), A.indptr, shape), B)
    product = _empty_product(A, words, n_bits, np.dtype(np.float32))
    codes = (read_only(words), read_only(weights))
    run_rows(kernels.multiply_codes, A.indptr, *_rows_of(A), *codes, product)
    return product


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
    return read_only(indptr), read_only(indices), read_only(A.data)


def read_only(array: np.ndarray) -> np.ndarray:
    """Return a view that cannot be written to: what may and what may not are compiled apart."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
