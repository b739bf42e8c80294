"""Preference: what a user rated -> the average content of it.

    p_u = Σ_i w_ui c_i / Σ_i w_ui,   w_ui = (rating + 1) / (highest + 1)

with c_i the content of item i, and ratings counted from the lowest possible one if that is below 0.
Every rating counts for something, a better one for more; an event without a rating counts as one in
the middle. Where the content is wider than `max_width`, it is projected on the main directions in
which the training users' averages differ (PCA, by a seeded randomised range finder).

It is a group of users with ratings: it takes part in a fit without levels, as in the paper, and
strangers do not have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.checks import check_memory
from coldhash.arrays.products import times
from coldhash.data.dataset import UserRecords
from coldhash.data.feedback import Scale
from coldhash.partitions import Partitions, add_up

ToPreference = Callable[[csr_array], np.ndarray]  # users x items: users x width and a constant
PREFERENCE = "preference"  # the name of the group
_OVERSAMPLING = 16  # directions drawn beyond the ones wanted
_ITERATIONS = 3  # of the subspace: the spectrum of word counts decays slowly
_SAMPLE = 1 << 25  # numbers (users x width) that a projection is learned from


def fit_preference(
    users: Partitions, content: csr_array, scale: Scale, max_width: int, rng: np.random.Generator
) -> ToPreference:
    """Return what turns ratings into the group: preferences, and 1 for users who have one.

    These are the users who rated an item that is described.
    """
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
    centre = add_up(totals) / max(n_users, 1)
    if width <= max_width:
        n_items = content.shape[0]
        check_memory(16 * n_items * width, f"content of {n_items:,} items x {width:,}")
        vectors = content.toarray()
    else:
        some = users.scatter(choose_rows(counts, max(_SAMPLE // width, max_width), rng))
        rows = np.concatenate(list(users.map(take_averages, users.records, some)))
        directions = main_directions(rows - rows.mean(axis=0), max_width, rng)
        vectors, centre = content @ directions, centre @ directions
    vectors = (vectors - centre).astype(np.float32)

    def apply(ratings: csr_array) -> np.ndarray:
        weights = _weights(ratings, has_content, scale)
        has = np.diff(weights.indptr)[:, None] > 0
        return np.hstack([times(weights, vectors), has.astype(np.float32)])

    return apply


def choose_rows(counts: Sequence[int], limit: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Choose up to `limit` rows, ascending; every partition has so many, and counts them from 0."""
    ends = np.cumsum([0, *counts])
    rows = np.sort(rng.permutation(ends[-1])[:limit])
    places = np.searchsorted(rows, ends)
    pieces = zip(places, places[1:], ends, strict=False)
    return [rows[begin:end] - first for begin, end, first in pieces]


def main_directions(rows: np.ndarray, width: int, rng: np.random.Generator) -> np.ndarray:
    """Find the `width` directions along which centred rows vary most (columns x width)."""
    n_columns = rows.shape[1]
    width = min(width, *rows.shape)
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
    keep = has_content[ratings.indices]
    lowest, highest = scale
    values = np.where(np.isnan(ratings.data), np.float32((lowest + highest) / 2), ratings.data)
    values = (values[keep] - np.float32(lowest) + 1) / np.float32(highest - lowest + 1)
    indptr = np.concatenate([[0], np.cumsum(keep)])[ratings.indptr]
    owners = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    totals = np.bincount(owners, values, minlength=len(indptr) - 1)
    shares = (values / totals[owners]).astype(np.float32)
    return csr_array((shares, ratings.indices[keep], indptr), shape=ratings.shape)
