"""Preference: what a user rated -> the average content of it.

    p_u = Σ_i w_ui c_i / Σ_i w_ui,   w_ui = (rating + 1) / (highest + 1)

with c_i the content of item i, and ratings counted from the lowest possible one if that is below 0.
Every rating counts for something, a better one for more; an event without a rating counts as one in
the middle. Where the
content is wider than `max_width`, it is projected on the main directions in which the training
users' averages differ (PCA, by a seeded randomised range finder).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coldhash.arrays.checks import Forms, check_memory, take
from coldhash.arrays.products import times
from coldhash.arrays.threads import one_blas_thread
from coldhash.data.feedback import Scale

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from coldhash.data.dataset import UserRecords
    from coldhash.partitions import Partitions

PREFERENCE = "preference"  # the name of the group
_FORMS: Forms = {  # of its arrays
    "item_vectors": ("f", "items", "width"),
    "has_content": ("b", "items"),
    "centre": ("f", "width"),
    "directions": ("f", "content", "width"),
}
_OVERSAMPLING = 16  # directions drawn beyond the ones wanted
_ITERATIONS = 3  # of the subspace: the spectrum of word counts decays slowly
_SAMPLE = 1 << 25  # numbers (users x width) that a projection is learned from
_MAX_SHUFFLED = 1 << 24  # rows; of more, a sample is drawn without shuffling all


@dataclass(frozen=True, eq=False)
class PreferenceMap:
    """From ratings to preferences: item content, centred and projected."""

    item_vectors: np.ndarray  # items x width: content, projected, centred
    has_content: np.ndarray  # which items are described at all
    scale: Scale  # the lowest rating, or 0 if that is above, and the highest
    centre: np.ndarray  # of the training users' averages, projected
    directions: np.ndarray | None = None  # content x width, where it was reduced

    @property
    def width(self) -> int:
        """The number of numbers in a preference."""
        return int(self.item_vectors.shape[1])

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return what was learned, as JSON and arrays."""
        arrays = {name: getattr(self, name) for name in _FORMS if getattr(self, name) is not None}
        return {"scale": self.scale, "reduced": self.directions is not None}, arrays

    @classmethod
    def from_state(cls, json: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> PreferenceMap:
        """Rebuild a map from what `state` returned; the arrays' names begin with the group's."""
        forms = {n: form for n, form in _FORMS.items() if n != "directions" or json["reduced"]}
        return cls(scale=tuple(json["scale"]), **take(arrays, forms, f"{PREFERENCE}/"))

    def take(self, rows: np.ndarray) -> PreferenceMap:
        """Return the map of some of the items."""
        vectors, described = self.item_vectors[rows], self.has_content[rows]
        return replace(self, item_vectors=vectors, has_content=described)

    def extend(self, content: csr_array) -> PreferenceMap:
        """Return the map with more items, in the same directions as the others."""
        wide = content.toarray() if self.directions is None else content @ self.directions
        vectors = np.vstack([self.item_vectors, (wide - self.centre).astype(np.float32)])
        described = np.concatenate([self.has_content, np.diff(content.indptr) > 0])
        return replace(self, item_vectors=vectors, has_content=described)

    def apply(self, ratings: csr_array) -> tuple[np.ndarray, np.ndarray]:
        """Return preferences and who has one: users who rated at least one described item."""
        weights = _weights(ratings, self.has_content, self.scale)
        has = np.diff(weights.indptr) > 0
        return times(weights, self.item_vectors), has


def fit_preference(
    users: Partitions, content: csr_array, scale: Scale, max_width: int, rng: np.random.Generator
) -> PreferenceMap:
    """Fit the projection to the training users."""
    from coldhash.partitions import add_up  # which reads data: not needed to serve a model

    has_content, width = np.diff(content.indptr) > 0, content.shape[1]
    scale = min(scale[0], 0.0), scale[1]

    def average_content(records: UserRecords, some: np.ndarray | slice) -> csr_array:
        """Average the content of what some of the users with a described item rated."""
        weights = _weights(records.ratings, has_content, scale)
        return weights[np.flatnonzero(np.diff(weights.indptr))[some]] @ content

    def sum_averages(records: UserRecords) -> tuple[np.ndarray, int]:
        averages = average_content(records, slice(None))
        return np.asarray(averages.sum(axis=0)).ravel(), averages.shape[0]

    def take_averages(records: UserRecords, some: np.ndarray) -> np.ndarray:
        return average_content(records, some).toarray().astype(np.float32)  # type: ignore[no-any-return]

    totals, counts = zip(*users.map(sum_averages, users.records), strict=True)
    n_users = sum(counts)
    centre, directions = add_up(totals) / max(n_users, 1), None
    if width <= max_width:
        n_items = content.shape[0]
        check_memory(16 * n_items * width, f"content of {n_items:,} items x {width:,}")
        vectors = content.toarray()
    else:
        chosen = choose_rows(n_users, max(_SAMPLE // width, max_width), rng)
        some = users.scatter(split_rows(chosen, list(counts)))
        rows = np.concatenate(list(users.map(take_averages, users.records, some)))
        directions = main_directions(rows - rows.mean(axis=0), max_width, rng)
        vectors, centre = content @ directions, centre @ directions
    vectors = (vectors - centre).astype(np.float32)
    return PreferenceMap(vectors, has_content, scale, centre, directions)


def choose_rows(n_rows: int, limit: int, rng: np.random.Generator) -> np.ndarray:
    """Choose up to `limit` of n rows, in ascending order."""
    if n_rows <= _MAX_SHUFFLED:
        return np.sort(rng.permutation(n_rows)[:limit])
    return np.sort(rng.choice(n_rows, min(limit, n_rows), replace=False, shuffle=False))


def split_rows(rows: np.ndarray, counts: list[int]) -> list[np.ndarray]:
    """Split ascending rows by partition; each partition counts its own rows from 0."""
    ends = np.cumsum([0, *counts])
    places = np.searchsorted(rows, ends)
    pieces = zip(places, places[1:], ends, strict=False)
    return [rows[begin:end] - first for begin, end, first in pieces]


def main_directions(rows: np.ndarray, width: int, rng: np.random.Generator) -> np.ndarray:
    """Find the `width` directions along which centred rows vary most (columns x width)."""
    n_columns = rows.shape[1]
    width = min(width, *rows.shape)
    with one_blas_thread():
        shape = (n_columns, min(width + _OVERSAMPLING, n_columns))
        basis = rng.standard_normal(shape, dtype=np.float32)
        gram = rows.T @ rows if n_columns < len(rows) else None  # whichever is less work
        for _ in range(_ITERATIONS):
            image = rows.T @ (rows @ basis) if gram is None else gram @ basis
            basis, _ = np.linalg.qr(image)
        image = rows @ basis
        _, rotation = np.linalg.eigh(image.T @ image)
        directions: np.ndarray = basis @ rotation[:, ::-1][:, :width]
    # an eigenvector has no sign of its own: make the largest entry positive
    peaks = directions[np.abs(directions).argmax(axis=0), np.arange(width)]
    return directions * np.where(peaks < 0, -1.0, 1.0)


def _weights(ratings: csr_array, has_content: np.ndarray, scale: Scale) -> csr_array:
    """Return each user's weights of the described items they rated; they add up to 1."""
    from scipy.sparse import csr_array

    keep = has_content[ratings.indices]
    lowest, highest = scale
    values = np.where(np.isnan(ratings.data), np.float32((lowest + highest) / 2), ratings.data)
    values = (values[keep] - np.float32(lowest) + 1) / np.float32(highest - lowest + 1)
    indptr = np.concatenate([[0], np.cumsum(keep)])[ratings.indptr]
    owners = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    totals = np.bincount(owners, values, minlength=len(indptr) - 1)
    shares = (values / totals[owners]).astype(np.float32)
    return csr_array((shares, ratings.indices[keep], indptr), shape=ratings.shape)
