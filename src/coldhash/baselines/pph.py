"""PPH: preference-preserving hashing; vectors of nearly equal length, lengths in two more bits.

    min  Σ_known (s_ui - ŝ/2 - u_u·v_i)² + λ [Σ_u (‖u_u‖² - ŝ/2)² + Σ_i (‖v_i‖² - ŝ/2)²]        (1)

    here   paper   note
    s, ŝ   S, S_m  ratings as they are, and the highest possible one
    u, v   p, q    the rows of U and V; signs of them lose the lengths, so (1) evens these out

Over one number of a row (1) is a quartic, whose minimum is the root of a cubic: each number is set
to its exact best, so (1) never rises.

A code is n_bits signs and two bits for the length of an item: (-1, -1) for a short one, a deviation
below the mean, (+1, +1) for a long one, and (-1, +1) between. Users have (+1, +1) there, so the two
bits are a small bias of the item. Codes of strangers need a map: "pph+map".

Zhang, Wang, Ruan, Si and Cheng, "Preference preserving hashing for efficient recommendation",
SIGIR 2014.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from pydantic import PositiveFloat, PositiveInt
from scipy.sparse import csr_array

from coldhash.arrays.compiled import compiled
from coldhash.arrays.threads import run_rows
from coldhash.baselines.shared import Baseline, Bits, Training
from coldhash.data.ratings import row_of_entries, with_values
from coldhash.recommender.recommender import Recommender


@dataclass(frozen=True, kw_only=True)
class PPH(Baseline):
    """Settings of the factorisation and of the map; codes are two bits longer than `n_bits`.

    Parameters
    ----------
    n_bits
        Length of codes without the two bits for the length (r).
    length_weight
        How hard lengths are evened out (λ).
    n_rounds
        Rounds of users and items.
    map_ridge
        Ridge of the map from features to user vectors.

    Examples
    --------
    >>> from coldhash import read
    >>> model = PPH(n_bits=62).fit(read("sample", n_users=200, n_items=60))
    >>> model.name, model.bytes_per_item
    ('pph+map', 8)
    """

    n_bits: Bits = 62
    length_weight: PositiveFloat = 85.0
    n_rounds: PositiveInt = 15
    map_ridge: PositiveFloat = 80.0

    def _fit(self, training: Training) -> Recommender:
        """Alternate users and items, round, and append the bits for lengths."""
        ratings, (low, high) = training.ratings.matrix, training.ratings.scale
        low = min(low, 0.0)
        middle = (high - low) / 2
        T = with_values(ratings, ratings.data.astype(np.float64) - low - middle)
        spread = np.sqrt(middle / self.n_bits)
        U, V = (spread * training.rng.standard_normal((size, self.n_bits)) for size in T.shape)
        step, loss = partial(self.update_rows, middle=middle), partial(self.loss, middle=middle)
        U, V = training.alternate(T, U, V, step, loss, self.n_rounds)
        ones = np.full((len(U), 2), np.abs(U).mean())  # a bit's worth each
        users, items = np.hstack([U, ones]), np.hstack([V, encode_lengths(V)])
        return training.make_mapped_recommender("pph+map", users, items, self.map_ridge)

    def loss(self, T: csr_array, U: np.ndarray, V: np.ndarray, middle: float) -> float:
        """Compute (1); T holds s - ŝ/2."""
        errors = T.data - np.einsum("nk,nk->n", U[row_of_entries(T)], V[T.indices])
        uneven = sum(np.sum((np.sum(M**2, axis=1) - middle) ** 2) for M in (U, V))
        return float(np.sum(errors**2) + self.length_weight * uneven)

    def update_rows(self, T: csr_array, U: np.ndarray, V: np.ndarray, middle: float) -> np.ndarray:
        """Lower (1) over the rows' vectors, given those of the columns; return the new ones."""
        new, entries = U.copy(), (T.indptr, T.indices, T.data)
        run_rows(_update_rows, T.indptr, *entries, V, middle, self.length_weight, new)
        return new


def encode_lengths(V: np.ndarray) -> np.ndarray:
    """Return two bits for each vector: short, in between or long."""
    lengths = np.sum(V**2, axis=1)
    mean, deviation = lengths.mean(), lengths.std()
    short, long = lengths < mean - deviation, lengths > mean + deviation
    return np.column_stack([np.where(long, 1.0, -1.0), np.where(short, -1.0, 1.0)])


@compiled(nogil=True)
def _update_rows(indptr, indices, values, V, middle, weight, U, first, last):  # type: ignore[no-untyped-def]
    """Update each row; rows do not depend on each other."""
    for u in range(first, last):
        start, end = indptr[u], indptr[u + 1]
        _update_row(indices[start:end], values[start:end], U[u], V, middle, weight)


@compiled()
def _update_row(items, values, u, V, middle, weight):  # type: ignore[no-untyped-def]
    """Update the numbers of one row one after the other, in place."""
    chosen, residual = np.empty((len(u), len(items))), values.copy()
    for j in range(len(items)):
        for k in range(len(u)):
            chosen[k, j] = V[items[j], k]
            residual[j] -= u[k] * chosen[k, j]
    length = np.dot(u, u)
    for k in range(len(u)):
        v, old = chosen[k], u[k]
        curve = np.dot(v, v)
        pull = np.dot(v, residual) + curve * old
        new = minimise_quartic(curve, pull, length - old * old - middle, weight)
        for j in range(len(v)):
            residual[j] -= (new - old) * v[j]
        length += new * new - old * old
        u[k] = new


@compiled()
def minimise_quartic(curve, pull, rest, weight):  # type: ignore[no-untyped-def]
    """Find the x that minimises  curve x² - 2 pull x + weight (x² + rest)².

    It is on the side of `pull`, and there the largest root of  x³ + 3 t x - 2 h = 0.
    """
    t = (curve + 2 * weight * rest) / (6 * weight)
    h = abs(pull) / (4 * weight)
    inside = h * h + t * t * t
    if inside >= 0:
        root = (h + np.sqrt(inside)) ** (1 / 3)
        x = root - t / root if root > 0 else 0.0
    else:
        x = 2 * np.sqrt(-t) * np.cos(np.arccos(min(h / np.sqrt(-t * t * t), 1.0)) / 3)
    return x if pull >= 0 else -x
