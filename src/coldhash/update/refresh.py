"""Learn again, from where the model stands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coldhash.arrays.codes import signs
from coldhash.data.dataset import Dataset
from coldhash.data.ids import Ids
from coldhash.errors import SettingError
from coldhash.mfdcf.model import MFDCF
from coldhash.recommender.items import CodeItems
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import Callback
from coldhash.update.change import Change, Source
from coldhash.update.items import NEEDS_MAP, new_codes
from coldhash.update.parts import codes_of

FEW = 3  # rounds: the codes are nearly right already


def refresh(
    model: Recommender,
    data: Dataset,
    *,
    n_rounds: int = FEW,
    seed: int = 0,
    callback: Callback | None = None,
) -> tuple[Recommender, Change]:
    """Fit again on all the ratings there are now, a few rounds from the present codes.

    Items and users that the model knows keep their order; those that are not in `data` any more
    are dropped, new ones come after the others.

    Examples
    --------
    >>> from coldhash import MFDCF, read, split_cold_users
    >>> data = read("sample", n_users=300, n_items=100)
    >>> before, _ = split_cold_users(data)
    >>> model, change = refresh(MFDCF(n_bits=32).fit(before), data)
    >>> len(change.users_added), len(model.user_ids)
    (60, 300)
    """
    items = codes_of(model)
    data = data.of_items(_kept_order(model.item_ids, data.ratings.items))
    data = data.of_users(_kept_order(model.user_ids, data.ratings.users))
    start, old_rows = _present_codes(model, items, data, seed)
    settings = MFDCF(**{**model.settings, "n_rounds": n_rounds})
    fitted = settings.fit(data, seed=seed, callback=callback, item_codes=start)
    fitted = replace(fitted, settings=model.settings)
    return fitted, _change(model, fitted, data, old_rows)


def _kept_order(before: Ids, now: Ids) -> np.ndarray:
    """Order rows: those that were there before first, as they were."""
    rows = now.find(before.values)
    old = rows[rows >= 0]
    return np.concatenate([old, np.setdiff1d(np.arange(len(now)), old)])


def _present_codes(
    model: Recommender, items: CodeItems, data: Dataset, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Give the codes to start from, and each item's row in the model."""
    n_items = len(data.ratings.items)
    old_rows = model.item_ids.find(data.ratings.items.values)
    new = np.flatnonzero(old_rows < 0)
    codes = np.ones((n_items, items.n_bits), dtype=np.float32)
    codes[old_rows >= 0] = items.rows(old_rows[old_rows >= 0])
    if len(new):
        codes[new] = _first_codes(model, data, new, seed)
    return codes, old_rows


def _first_codes(model: Recommender, data: Dataset, new: np.ndarray, seed: int) -> np.ndarray:
    """Give the codes that new items start from: by content, or random if ratings are to tell."""
    if model.item_map is None:
        unrated = new[data.ratings.per_item[new] == 0]
        if len(unrated):
            raise SettingError(
                f"item {data.ratings.items[unrated[0]]!r} is new and nobody has rated it, and this "
                "model has not learned what content says",
                hint=NEEDS_MAP,
            )
        shape = (len(new), model.user_vectors.shape[1])
        return np.random.default_rng(seed).integers(0, 2, size=shape) * 2 - 1
    content = model.features.item_content(data.items, len(data.ratings.items))[new]
    nobody, nothing = model.user_vectors[:0], data.ratings.matrix[:0, new]
    return new_codes(model.item_map.gram, model.item_map.pulls(content, nobody, nothing))


def _change(model: Recommender, fitted: Recommender, data: Dataset, old_rows: np.ndarray) -> Change:
    both = np.flatnonzero(old_rows >= 0)
    flipped = np.sum(fitted.items.rows(both) != model.items.rows(old_rows[both]), axis=1)
    sources: dict[bool, Source] = {True: "ratings", False: "content"}
    users = fitted.user_ids.find(model.user_ids.values)
    stay = np.flatnonzero(users >= 0)
    other = np.any(signs(model.user_vectors[stay]) != signs(fitted.user_vectors[users[stay]]), 1)
    return Change(
        items_added={
            fitted.item_ids[row]: sources[bool(data.ratings.per_item[row])]
            for row in np.flatnonzero(old_rows < 0)
        },
        items_removed=_gone(model.item_ids, fitted.item_ids),
        items_changed=int(np.sum(flipped > 0)),
        bits_changed=int(flipped.sum()),
        users_added=_gone(fitted.user_ids, model.user_ids),
        users_changed=[model.user_ids[row] for row in stay[other]],
        users_removed=_gone(model.user_ids, fitted.user_ids),
    )


def _gone(before: Ids, now: Ids) -> list[str]:
    """Give the ids of one model that the other does not have."""
    return [before[row] for row in np.flatnonzero(now.find(before.values) < 0)]
