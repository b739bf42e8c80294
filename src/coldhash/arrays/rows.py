"""SparseRows: the rows of a sparse matrix, for answers, which need no arithmetic of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_array


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
        return cls(matrix.data, matrix.indices, matrix.indptr, matrix.shape)

    @classmethod
    def of_lists(cls, lists: Sequence[np.ndarray], n_columns: int) -> SparseRows:
        """Build from the columns of each row; all values are 1."""
        indptr = np.cumsum([0, *map(len, lists)])
        indices = np.concatenate([np.zeros(0, np.int32), *lists])
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

    def lists(self) -> list[np.ndarray]:
        """Return the columns of each row."""
        return [self.indices[start:end] for start, end in pairwise(self.indptr.tolist())]
