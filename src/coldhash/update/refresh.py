"""Fit a model again from its present codes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coldhash.arrays.codes import signs
from coldhash.data.dataset import Dataset
from coldhash.data.ids import Ids
from coldhash.data.ratings import RatingTarget
from coldhash.mfdcf.model import MFDCF
from coldhash.recommender.items import CodeItems
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import Callback, settings_from
from coldhash.update.edit import Change, check_takes_new_items
from coldhash.update.new_items import estimate_items


def refresh(
    model: Recommender,
    data: Dataset,
    *,
    n_rounds: int = 3,
    seed: int = 0,
    callback: Callback | None = None,
) -> tuple[Recommender, Change]:
    """Fit again on all the ratings there are now, a few rounds from the present codes.

    Items and users that the model knows keep their order; those that are not in `data` any more
    are dropped, new ones come after the others.

    Parameters
    ----------
    model
        A model of MFDCF.
    data
        All ratings, users and items there are now.
    n_rounds
        Rounds of the fit.
    seed
        Seed of everything that is drawn.
    callback
        Called with the number of each round and the objective after it.

    Returns
    -------
    Recommender, Change
        The new model, and what became of the old one, which stays as it is.

    Raises
    ------
    SettingError
        The model is not one of MFDCF.

    Examples
    --------
    >>> from coldhash import MFDCF, read, split_cold_users
    >>> data = read("sample", n_users=300, n_items=100)
    >>> before, _ = split_cold_users(data)
    >>> model, change = refresh(MFDCF(n_bits=32).fit(before), data)
    >>> len(change.users_added), len(model.user_ids)
    (60, 300)
    """
    items = check_takes_new_items(model)
    data = data.of_items(_kept_order(model.item_ids, data.ratings.items))
    data = data.of_users(_kept_order(model.user_ids, data.ratings.users))
    old_rows = model.item_ids.find(data.ratings.items.values)  # -1: the item is new
    known, new = np.flatnonzero(old_rows >= 0), np.flatnonzero(old_rows < 0)
    codes = np.ones((len(old_rows), items.n_bits), dtype=np.float32)
    codes[known] = items.rows(old_rows[known])
    if len(new):
        codes[new] = _first_codes(model, items, data, new)
    settings = settings_from(MFDCF, {**model.settings, "n_rounds": n_rounds})
    fitted = settings.fit(data, seed=seed, callback=callback, item_codes=codes)
    fitted = replace(fitted, settings=model.settings)
    return fitted, _compare(model, fitted, data, old_rows)


def _kept_order(before: Ids, now: Ids) -> np.ndarray:
    """Return the rows of `now`: first those that were there before, in the order they had."""
    rows = now.find(before.values)
    old = rows[rows >= 0]
    return np.concatenate([old, np.setdiff1d(np.arange(len(now)), old)])


def _first_codes(
    model: Recommender, items: CodeItems, data: Dataset, new: np.ndarray
) -> np.ndarray:
    """Return the codes that new items start from: those that their content says."""
    content = model.features.item_content(data.items, len(data.ratings.items))[new]
    nothing, nobody = data.ratings.matrix[:0, new], model.user_vectors[:0]
    target = RatingTarget("known", model.feedback)
    return estimate_items(model, items, content, nothing, nobody, target).codes


def _compare(
    model: Recommender, fitted: Recommender, data: Dataset, old_rows: np.ndarray
) -> Change:
    """Return what became of a model."""
    both = np.flatnonzero(old_rows >= 0)
    flipped = np.sum(fitted.items.rows(both) != model.items.rows(old_rows[both]), axis=1)
    users = fitted.user_ids.find(model.user_ids.values)
    stay = np.flatnonzero(users >= 0)
    other = np.any(signs(model.user_vectors[stay]) != signs(fitted.user_vectors[users[stay]]), 1)
    return Change(
        items_added={
            fitted.item_ids[row]: "ratings" if data.ratings.per_item[row] else "content"
            for row in np.flatnonzero(old_rows < 0)
        },
        items_removed=_missing_ids(model.item_ids, fitted.item_ids),
        items_changed=int(np.sum(flipped > 0)),
        bits_changed=int(flipped.sum()),
        users_added=_missing_ids(fitted.user_ids, model.user_ids),
        users_changed=[model.user_ids[row] for row in stay[other]],
        users_removed=_missing_ids(model.user_ids, fitted.user_ids),
    )


def _missing_ids(before: Ids, now: Ids) -> list[str]:
    """Return the ids of `before` that are not in `now`."""
    return [before[row] for row in np.flatnonzero(now.find(before.values) < 0)]
