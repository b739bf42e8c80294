"""Change: what an update did; and the parts of a model with fewer or more items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array, hstack, vstack

from coldhash.data.ids import Ids
from coldhash.errors import SettingError
from coldhash.recommender.items import CodeItems, code_items
from coldhash.recommender.recommender import Recommender
from coldhash.registry import MODELS

Source = Literal["ratings", "content", "average"]  # what the code of a new item was made from


@dataclass(frozen=True)
class Change:
    """What an update did to a model.

    Parameters
    ----------
    items_added
        Ids of new items, and what their codes were made from: "ratings", "content", or the
        "average" item.
    items_removed
        Ids of items that are no longer in the model.
    items_changed
        How many items that were there before have another code now.
    bits_changed
        How many bits of those codes changed.
    users_added, users_changed, users_removed
        Ids of users who are new, have another vector, or are no longer in the model.

    Examples
    --------
    >>> print(Change(items_added={"new": "content"}, users_changed=["ann"]))
    1 items added (1 by content)
    1 users changed
    """

    items_added: dict[str, Source] = field(default_factory=dict)
    items_removed: list[str] = field(default_factory=list)
    items_changed: int = 0
    bits_changed: int = 0
    users_added: list[str] = field(default_factory=list)
    users_changed: list[str] = field(default_factory=list)
    users_removed: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        """Return everything as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        used = list(self.items_added.values())
        sources = ", ".join(f"{used.count(source)} by {source}" for source in sorted(set(used)))
        lines = {
            f"items added ({sources})": len(used),
            "items removed": len(self.items_removed),
            f"items with another code ({self.bits_changed:,} bits)": self.items_changed,
            "users added": len(self.users_added),
            "users changed": len(self.users_changed),
            "users removed": len(self.users_removed),
        }
        return "\n".join(f"{n:,} {what}" for what, n in lines.items() if n) or "nothing changed"


def check_takes_new_items(model: Recommender) -> CodeItems:
    """Return the codes of a model whose method can make codes of new items; raise otherwise."""
    items = code_items(model.items)
    if items is None or not getattr(MODELS.get(model.name), "takes_new_items", False):
        raise SettingError(
            f"{model.name} cannot make codes of new items",
            hint="fit MFDCF(new_items=True), or fit again on all ratings",
        )
    return items


def select_items(model: Recommender, rows: np.ndarray) -> Recommender:
    """Return the model with these items only."""
    popularity = np.asarray(model.popularity)[rows]
    items, preference = model.items.select(rows, popularity), model.features.preference
    features = replace(model.features, preference=preference and preference.take(rows))
    return replace(
        model,
        items=items,
        item_ids=model.item_ids.take(rows),
        popularity=popularity,
        features=features,
        encoder=model.encoder.follow_items(items, features, rows, 0),
        seen=None if model.seen is None else csr_array(_as_ones(model.seen)[:, rows]),
        item_table=model.item_table and model.item_table.take(pa.array(rows)),
    )


def append_items(
    model: Recommender,
    item_ids: Ids,
    codes: np.ndarray,
    popularity: np.ndarray,
    content: csr_array,
    table: pa.Table,
    seen: csr_array,
) -> Recommender:
    """Return the model with more items after the ones it has; `seen` is of the new ones alone."""
    counts = np.concatenate([model.popularity, popularity.astype(model.popularity.dtype)])
    items = check_takes_new_items(model).extend(codes, counts)
    preference = model.features.preference
    features = replace(model.features, preference=preference and preference.extend(content))
    rows = np.arange(len(model.item_ids))
    return replace(
        model,
        items=items,
        item_ids=_append_ids(model.item_ids, item_ids, "item"),
        popularity=counts,
        features=features,
        encoder=model.encoder.follow_items(items, features, rows, len(codes)),
        seen=_stack(hstack, model.seen, seen),
        item_table=model.item_table and pa.concat_tables([model.item_table, table]),
    )


def append_users(
    model: Recommender, ids: Ids, ratings: csr_array | None
) -> tuple[Recommender, np.ndarray]:
    """Return the model with the users and ratings that it did not have, and the rows of `ids`.

    The vectors of new users are 0.
    """
    new = np.flatnonzero(model.user_ids.find(ids.values) < 0)
    user_ids = _append_ids(model.user_ids, ids.take(new), "user") if len(new) else model.user_ids
    rows = user_ids.rows(ids.values)
    zeros = np.zeros((len(new), model.user_vectors.shape[1]), dtype=model.user_vectors.dtype)
    vectors = np.vstack([model.user_vectors, zeros])
    unrated = csr_array((len(new), len(model.item_ids)), dtype=np.float32)
    seen = _stack(vstack, model.seen, unrated)
    if seen is not None and ratings is not None:
        owners = np.repeat(rows, np.diff(ratings.indptr))
        places = owners, ratings.indices
        seen = _as_ones(seen + csr_array((np.ones_like(ratings.data), places), shape=seen.shape))
    return replace(model, user_ids=user_ids, user_vectors=vectors, seen=seen), rows


def _append_ids(ids: Ids, more: Ids, kind: str) -> Ids:
    return Ids.of(pa.concat_arrays([each.values.cast(pa.string()) for each in (ids, more)]), kind)


def _stack(
    stack: Callable[..., csr_array], seen: csr_array | None, more: csr_array
) -> csr_array | None:
    """Return what users have rated with more items or users; None if the model does not keep it."""
    if seen is None:
        return None
    return csr_array(stack([_as_ones(seen), _as_ones(more)], format="csr"))


def _as_ones(ratings: csr_array) -> csr_array:
    """Return a matrix of ones where there are ratings; a loaded model stores a single 1."""
    ones = np.ones(len(ratings.indices), dtype=np.float32)
    return csr_array((ones, ratings.indices, ratings.indptr), shape=ratings.shape)
