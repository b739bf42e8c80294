"""Items come and go; nothing is fitted again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from coldhash.arrays.codes import signs
from coldhash.arrays.products import times
from coldhash.data.dataset import pad_table, read_ratings, read_side_table
from coldhash.data.ids import Ids
from coldhash.data.ratings import Ratings, RatingTarget, is_favourite
from coldhash.errors import DataError, SettingError, UnknownId
from coldhash.mfdcf.items import descend
from coldhash.recommender.recommender import Recommender
from coldhash.update.change import Change, Source
from coldhash.update.parts import codes_of, fitted_table, joined_by, taking

STARTS = 8  # codes that the descent starts from: the best end counts
SWEEPS = 20  # at most; it stops when no bit changes
NEEDS_MAP = "fit MFDCF(new_items=True), or with the command line: --set new_items=true"


def add_items(
    model: Recommender, items: Any, ratings: Any = None, users: Any = None
) -> tuple[Recommender, Change]:
    """Add items that the model has never seen; they are found by all searches at once.

    Parameters
    ----------
    items
        A table: `item_id`, and any of the columns that the model knows. What is unknown may be
        missing; an item of which nothing is known gets the code of an average item.
    ratings
        First ratings of these items, if there are any: a table `user_id, item_id, rating`. A model
        that was fitted without `new_items=True` needs many: as many as the average item has.
    users
        A table that describes the raters whom the model does not know.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32, new_items=True).fit(read("sample", n_users=300, n_items=100))
    >>> more, change = add_items(model, {"item_id": ["new"], "genres": ["comedy"]})
    >>> len(more.item_ids), change.items_added
    (101, {'new': 'content'})
    """
    codes_of(model)
    ids, given = read_side_table(items, "item", {})
    assert ids is not None
    again = [item_id for item_id in ids if item_id in model.item_ids]
    if again:
        raise DataError(
            f"item {again[0]!r} is in the model already",
            hint="remove_items first, or refresh with all ratings",
        )
    table = fitted_table(model, given, len(ids))
    known_columns = table if model.item_table is not None else given
    content = model.features.item_content(known_columns, len(ids))
    rated = _first_ratings(model, ids, ratings)
    vectors = np.vstack([model.user_vectors, _strangers(model, rated, users)])
    if model.item_map is None:
        codes = _codes_of_ratings(model, vectors, rated)
    else:
        pulls = model.item_map.pulls(content, vectors, rated.matrix)
        codes = new_codes(model.item_map.gram, pulls)
    popularity = _favourites(rated)
    known = rated.of_users(np.arange(len(model.user_ids))).matrix
    seen = csr_array((np.ones_like(known.data), known.indices, known.indptr), shape=known.shape)
    added = joined_by(model, ids, codes, popularity, content, table, seen)
    return added, Change(items_added=_sources(ids, content, rated))


def remove_items(model: Recommender, item_ids: Iterable[Any]) -> tuple[Recommender, Change]:
    """Take items out of a model of any method: they are neither found nor counted any more.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> fewer, change = remove_items(model, ["7"])
    >>> len(fewer.item_ids), "7" in fewer.item_ids, change.items_removed
    (99, False, ['7'])
    """
    rows = np.unique(model.item_ids.rows(item_ids))
    if len(rows) == len(model.item_ids):
        raise SettingError("no item would be left", hint="keep at least one")
    removed = [model.item_ids[row] for row in rows]
    kept = np.setdiff1d(np.arange(len(model.item_ids)), rows)
    return taking(model, kept), Change(items_removed=removed)


def new_codes(gram: np.ndarray, pulls: np.ndarray) -> np.ndarray:
    """Do the item step for new items; no item's code depends on the others'."""
    gram = gram.astype(np.float32)
    free = np.linalg.solve(gram.astype(np.float64), pulls.T.astype(np.float64)).T
    spread = np.sqrt(np.mean(free**2, axis=1, keepdims=True))
    rng = np.random.default_rng(0)
    best, lowest = np.ones_like(pulls), np.full(len(pulls), np.inf)
    for n in range(STARTS):
        push = rng.standard_normal(gram.shape[0]) if n else np.zeros(gram.shape[0])
        codes = descend(signs(free + spread * push, np.float32), pulls, gram, SWEEPS, rng)
        energy = np.einsum("ik,ik->i", codes @ gram - 2 * pulls, codes, dtype=np.float64)
        better = energy < lowest
        best[better], lowest[better] = codes[better], energy[better]
    return best.astype(np.int8)


def _codes_of_ratings(model: Recommender, vectors: np.ndarray, rated: Ratings) -> np.ndarray:
    """Do the item step on ratings alone, as without strangers: no map is needed for it."""
    plenty = len(model.seen.indices) / len(model.item_ids) if model.seen is not None else np.inf
    few = np.flatnonzero(rated.per_item < max(plenty, 1.0))
    if len(few):
        item_id, count = rated.items[few[0]], int(rated.per_item[few[0]])
        raise SettingError(
            f"item {item_id!r} has {count:,} ratings, too few to make a code of, and this model "
            "has not learned what content says",
            hint=NEEDS_MAP,
        )
    n_bits = model.user_vectors.shape[1]
    target = RatingTarget(model.settings["target"], model.scale[1])
    matrix = rated.matrix
    shown = csr_array((target(matrix.data), matrix.indices, matrix.indptr), shape=matrix.shape)
    pulls = np.float32(n_bits) * times(shown.T.tocsr(), vectors)
    return new_codes(model.user_vectors.T @ model.user_vectors, pulls)


def _first_ratings(model: Recommender, items: Ids, ratings: Any) -> Ratings:
    if ratings is None:
        nothing = csr_array((len(model.user_ids), len(items)), dtype=np.float32)
        return Ratings(nothing, model.user_ids, items)
    rated = read_ratings(ratings, {}, model.user_ids, items, model.scale, "error")
    if len(rated.items) > len(items):
        other = rated.items[len(items)]
        raise UnknownId(
            f"item {other!r} is rated, but not among the new items",
            hint="refresh learns from ratings of items that are there already"
            if other in model.item_ids
            else "give it a row in the item table",
        )
    return rated


def _strangers(model: Recommender, rated: Ratings, users: Any) -> np.ndarray:
    """Encode the raters whom the model does not know."""
    n_known = len(model.user_ids)
    strangers = [rated.users[row] for row in range(n_known, len(rated.users))]
    if not strangers:
        return np.zeros((0, model.user_vectors.shape[1]), dtype=np.float32)
    ids, table = read_side_table(users, "user", {})
    missing = [name for name in strangers if ids is None or name not in ids]
    if missing:
        raise UnknownId(
            f"user {missing[0]!r} rated a new item, but is not known to the model",
            hint="describe unknown raters in a user table, or leave their ratings out",
        )
    assert ids is not None
    rows = pa.array(ids.rows(strangers))
    return model.encode(pad_table(table, len(ids)).take(rows)).vectors


def _favourites(rated: Ratings) -> np.ndarray:
    matrix = rated.matrix
    liked = is_favourite(matrix.data, rated.scale[1]).astype(np.float64)
    return np.bincount(matrix.indices, liked, minlength=matrix.shape[1])


def _sources(ids: Ids, content: csr_array, rated: Ratings) -> dict[str, Source]:
    described = np.diff(content.indptr) > 0
    names: list[Source] = ["average", "content", "ratings"]
    which = np.where(rated.per_item > 0, 2, described.astype(int))
    return {item_id: names[at] for item_id, at in zip(ids, which, strict=True)}
