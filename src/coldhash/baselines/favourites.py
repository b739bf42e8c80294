"""What every model takes from its data as it is: ids, favourites, popularity, what to show."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from coldhash.data.dataset import Dataset
from coldhash.data.targets import is_favourite


def favourite_matrix(data: Dataset) -> csr_array:
    """Give users x items with a 1 for each favourite."""
    ratings = data.ratings
    liked = ratings.where(is_favourite(ratings.matrix.data, ratings.scale[1])).matrix
    ones = np.ones(liked.nnz, dtype=np.float32)
    return csr_array((ones, liked.indices, liked.indptr), shape=liked.shape)


def favourites_per_item(data: Dataset) -> np.ndarray:
    """Count the favourites of each item."""
    return np.asarray(favourite_matrix(data).sum(axis=0), dtype=np.float32)


def facts_of(data: Dataset) -> dict[str, Any]:
    """Give the parts of a `Recommender` that do not depend on the method."""
    return {
        "item_ids": data.ratings.items,
        "user_ids": data.ratings.users,
        "popularity": favourites_per_item(data),
        "scale": data.ratings.scale,
        "seen": data.ratings.matrix,
        "item_table": data.items,
    }
