"""The favourites in a data set: what the controls learn, and what popularity counts."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from coldhash.data.dataset import Dataset
from coldhash.targets import is_favourite


def favourite_matrix(data: Dataset) -> csr_array:
    """Give users x items with a 1 for each favourite."""
    ratings = data.ratings
    liked = ratings.where(is_favourite(ratings.matrix.data, ratings.scale[1])).matrix
    ones = np.ones(liked.nnz, dtype=np.float32)
    return csr_array((ones, liked.indices, liked.indptr), shape=liked.shape)


def favourites_per_item(data: Dataset) -> np.ndarray:
    """Count the favourites of each item."""
    return np.asarray(favourite_matrix(data).sum(axis=0), dtype=np.float32)
