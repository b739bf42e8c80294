"""What several baselines share: favourites, delegates of balanced codes, rotations.

Delegates are the real-valued stand-ins that keep codes balanced and bits apart:

    max  tr(B'X)   over   X'1 = 0,  X'X = n I

Exactly balanced and uncorrelated codes may not exist, so codes are only pulled towards the nearest
real matrix that is both. With the centred codes  B - 1b̄ = U Σ P',  it is  X = √n [U U*][P P*]',
where U* and P* complete the directions in which the codes do not vary.

Zhang, Shen, Liu, He, Luan and Chua, "Discrete collaborative filtering", SIGIR 2016.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from coldhash.data.dataset import Dataset
from coldhash.data.ratings import is_favourite
from coldhash.errors import SettingError
from coldhash.features.groups import FeatureEncoder
from coldhash.recommender.encoders.base import Encoder
from coldhash.recommender.items import CodeItems, RealItems
from coldhash.recommender.recommender import Recommender

FLAT = 1e-8  # of the greatest eigenvalue: below it codes do not vary in a direction


def favourite_matrix(data: Dataset) -> csr_array:
    """Give users x items with a 1 for each favourite."""
    ratings = data.ratings
    liked = ratings.where(is_favourite(ratings.matrix.data, ratings.scale[1])).matrix
    ones = np.ones(liked.nnz, dtype=np.float32)
    return csr_array((ones, liked.indices, liked.indptr), shape=liked.shape)


def favourites_per_item(data: Dataset) -> np.ndarray:
    """Count the favourites of each item."""
    return np.asarray(favourite_matrix(data).sum(axis=0), dtype=np.float32)


def make_recommender(
    data: Dataset,
    *,
    name: str,
    settings: Any,
    features: FeatureEncoder,
    encoder: Encoder,
    user_vectors: np.ndarray,
    codes: np.ndarray | None = None,
    vectors: np.ndarray | csr_array | None = None,
    report: dict[str, Any] | None = None,
) -> Recommender:
    """Return the fitted model of a method.

    Parameters
    ----------
    settings
        The method's settings, a dataclass.
    codes, vectors
        What was learned of items, one of the two: rows of +1 and -1, or real numbers.
    """
    popularity = favourites_per_item(data)
    return Recommender(
        name=name,
        settings=asdict(settings),
        features=features,
        encoder=encoder,
        item_ids=data.item_ids,
        items=RealItems(vectors, popularity) if codes is None else CodeItems.of(codes, popularity),
        popularity=popularity,
        scale=data.scale,
        user_ids=data.user_ids,
        user_vectors=user_vectors,
        report=report or {},
        seen=data.ratings.matrix,
        item_table=data.items,
    )


def delegate(B: np.ndarray) -> np.ndarray:
    """Give the balanced, uncorrelated matrix nearest to B (entities x bits), of the same shape."""
    n, n_bits = B.shape
    if n <= n_bits:
        raise SettingError(
            f"{n} codes of {n_bits} bits cannot be balanced and uncorrelated",
            hint=f"at most {max(n - 1, 0)} bits, or no balance",
        )
    centred = B - B.mean(axis=0, dtype=np.float64)
    values, P = np.linalg.eigh(centred.T @ centred)
    values, P = values[::-1], P[:, ::-1]  # descending, so that what is completed comes last
    rank = int(np.sum(values > FLAT * max(values[0], 1.0)))
    U = centred @ (P[:, :rank] / np.sqrt(values[:rank]))
    if rank < n_bits:
        U = np.hstack([U, _complement(U, n_bits - rank)])
    return np.asarray(np.sqrt(n) * (U @ P.T))


def balance(B: np.ndarray, weight: float) -> np.ndarray:
    """Give the pull of the delegate on each code; none at weight 0, however few the codes."""
    return weight * delegate(B) if weight else np.zeros(B.shape)


def _complement(U: np.ndarray, width: int) -> np.ndarray:
    """Give orthonormal columns that are orthogonal to those of U and to the constant."""
    n = len(U)
    basis = np.hstack([np.full((n, 1), 1 / np.sqrt(n)), U])
    free = np.random.default_rng(0).standard_normal((n, width))
    for _ in range(2):  # once leaves traces
        free -= basis @ (basis.T @ free)
    return np.linalg.qr(free)[0]


def polar(matrix: np.ndarray) -> np.ndarray:
    """Return the rotation nearest to a matrix."""
    P, _, Qt = np.linalg.svd(matrix)
    return P @ Qt  # type: ignore[no-any-return]


def random_rotation(n_bits: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a rotation (bits x bits)."""
    return polar(rng.standard_normal((n_bits, n_bits))).astype(np.float32)
