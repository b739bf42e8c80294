"""Users change, and new ones come; nothing is fitted again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from coldhash.data.dataset import pad_table, read_ratings, read_side_table
from coldhash.data.ids import Ids
from coldhash.errors import SettingError, UnknownId
from coldhash.recommender.recommender import Recommender
from coldhash.update.change import Change


def update_users(
    model: Recommender, users: Any = None, ratings: Any = None
) -> tuple[Recommender, Change]:
    """Give users new vectors from what is known of them now; unknown users are added.

    A model does not keep the ratings it was fitted on: say all that is known of a user, not only
    what is new. Users who are not mentioned stay as they are.

    Parameters
    ----------
    users
        A table: `user_id`, and any of the columns that the model knows.
    ratings
        A table `user_id, item_id, rating`, of items in the model.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> model, change = update_users(
    ...     model,
    ...     users={"user_id": ["ann"], "age": [30]},
    ...     ratings={"user_id": ["ann"], "item_id": ["7"], "rating": [5]},
    ... )
    >>> change.users_added, len(model.recommend(user_ids=["ann"], k=3))
    (['ann'], 3)
    """
    if users is None and ratings is None:
        raise SettingError("nothing is said of any user", hint="users or ratings, or both")
    ids, table = read_side_table(users, "user", {})
    given = None
    if ratings is not None:
        rated = read_ratings(ratings, {}, ids, model.item_ids, model.scale, "error")
        if len(rated.items) > len(model.item_ids):
            raise UnknownId(
                f"item {rated.items[len(model.item_ids)]!r} is rated, but not in the model",
                hint="add_items first",
            )
        ids, given = rated.users, rated.matrix
    assert ids is not None
    grown, rows = _with_rows(model, ids)
    people = pad_table(table, len(ids)) if table.num_columns else [{}] * len(ids)
    changed = grown.with_users(ids.values, people, given)
    if given is not None and changed.seen is not None:
        changed = replace(changed, seen=_joined(changed.seen, rows, given))
    n_known = len(model.user_ids)
    return changed, Change(
        users_added=[ids[at] for at in np.flatnonzero(rows >= n_known)],
        users_changed=[ids[at] for at in np.flatnonzero(rows < n_known)],
    )


def _with_rows(model: Recommender, ids: Ids) -> tuple[Recommender, np.ndarray]:
    """Make room for the users that the model does not know; gives everybody's row."""
    new = np.flatnonzero(model.user_ids.find(ids.values) < 0)
    if not len(new):
        return model, model.user_ids.rows(ids.values)
    known = model.user_ids.values.cast(pa.string())
    user_ids = Ids.of(pa.concat_arrays([known, ids.take(new).values.cast(pa.string())]), "user")
    room = np.zeros((len(new), model.user_vectors.shape[1]), dtype=model.user_vectors.dtype)
    seen = model.seen
    if seen is not None:
        indptr = np.concatenate([seen.indptr, np.full(len(new), seen.indptr[-1])])
        shape = (len(user_ids), seen.shape[1])
        seen = csr_array((seen.data, seen.indices, indptr), shape=shape)
    vectors = np.vstack([model.user_vectors, room])
    grown = replace(model, user_ids=user_ids, user_vectors=vectors, seen=seen)
    return grown, user_ids.rows(ids.values)


def _joined(seen: csr_array, rows: np.ndarray, given: csr_array) -> csr_array:
    """Add what was rated now to what was rated before."""
    owners = np.concatenate(
        [
            np.repeat(np.arange(seen.shape[0]), np.diff(seen.indptr)),
            np.repeat(rows, np.diff(given.indptr)),
        ]
    )
    items = np.concatenate([seen.indices, given.indices])
    ones = np.ones(len(items), dtype=np.float32)
    joined = csr_array((ones, (owners, items)), shape=seen.shape)
    joined.sum_duplicates()
    joined.data[:] = 1
    return joined
