"""Add, remove and update items and users of a fitted model, or fit it again from its codes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array, hstack

from coldhash.arrays.codes import signs
from coldhash.data.dataset import Dataset
from coldhash.data.ids import Ids, assign_rows
from coldhash.data.ratings import Ratings, RatingTarget, as_ones
from coldhash.data.reading import RatingOptions, pad_table, read_id_table, read_ratings
from coldhash.data.tables import TableLike
from coldhash.errors import DataError, SettingError, UnknownId
from coldhash.mfdcf.model import MFDCF, Callback
from coldhash.recommender.items import CodeItems, code_items
from coldhash.recommender.recommender import Recommender
from coldhash.registry import MODELS, settings_from
from coldhash.update.new_items import estimate_items

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
        """Return everything as plain values.

        Returns
        -------
        dict of str to object
            The parameters of this class by name, as values that JSON can hold.
        """
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
    if not getattr(MODELS.get(model.name), "takes_new_items", False):
        hint = "fit MFDCF, or fit again on all ratings"
        raise SettingError(f"{model.name} cannot make codes of new items", hint=hint)
    return code_items(model.items)


def add_items(
    model: Recommender,
    items: TableLike,
    ratings: TableLike | None = None,
    users: TableLike | None = None,
) -> tuple[Recommender, Change]:
    """Add items that the model has never seen; they are found by all searches at once.

    Parameters
    ----------
    model
        A model of MFDCF.
    items
        A table: `item_id`, and any of the columns that the model knows. What is unknown may be
        missing; an item of which nothing is known gets the code of an average item.
    ratings
        First ratings of these items, if there are any: a table `user_id, item_id, rating`.
    users
        A table that describes the raters whom the model does not know.

    Returns
    -------
    Recommender, Change
        The new model, and what became of the old one, which stays as it is.

    Raises
    ------
    SettingError
        The method cannot make codes of new items.
    DataError
        An item is in the model already, or a column is not of the model's type.
    UnknownId
        An item or a user of `ratings` is not described anywhere.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> more, change = add_items(model, {"item_id": ["new"], "genres": ["comedy"]})
    >>> len(more.item_ids), change.items_added
    (101, {'new': 'content'})
    """
    codes = check_takes_new_items(model)
    _, ids, given = read_id_table(items, "item", model.columns)
    assert ids is not None
    again = [item_id for item_id in ids if item_id in model.item_ids]
    if again:
        raise DataError(
            f"item {again[0]!r} is in the model already",
            hint="remove_items first, or refresh with all ratings",
        )
    table = _match_columns(model, given, len(ids))
    content = model.features.item_content(table, len(ids))
    hint = "add a row for it to the item table; refresh learns from ratings of the other items"
    rated = _read_ratings(ratings, model.user_ids, ids, model, hint)
    vectors = np.vstack([model.user_vectors, _encode_strangers(model, rated, users)])
    target = RatingTarget(settings_from(MFDCF, model.settings).target, model.feedback)
    new, levels = estimate_items(model, codes, content, rated.matrix, vectors, target)
    liked = model.feedback.is_favourite(rated.matrix)
    favourites = np.bincount(rated.matrix.indices[liked], minlength=len(ids))
    popularity = np.concatenate([model.popularity, favourites.astype(model.popularity.dtype)])
    rows = np.arange(len(model.item_ids))
    codes = codes.select(rows, popularity, new, levels)
    own = rated.of_users(np.arange(len(model.user_ids))).matrix
    grown = replace(
        model,
        items=codes,
        item_ids=assign_rows(ids.values, model.item_ids, "item", str)[0],
        popularity=popularity,
        encoder=model.encoder.follow_items(codes, np.arange(len(model.item_ids)), len(ids)),
        seen=csr_array(hstack([as_ones(model.seen), as_ones(own)], format="csr")),
        item_table=model.item_table and pa.concat_tables([model.item_table, table]),
        guessed=np.concatenate([model.guesses, np.ones(len(ids), bool)]),
    )
    known = [rated.per_item > 0, np.diff(content.indptr) > 0]
    source = np.select(known, ["ratings", "content"], "average")
    return grown, Change(items_added=dict(zip(ids, source.tolist(), strict=True)))


def remove_items(model: Recommender, item_ids: Iterable[str | int]) -> tuple[Recommender, Change]:
    """Remove items from a model of any method: they are neither found nor counted any more.

    Parameters
    ----------
    model
        A fitted model.
    item_ids
        The items to remove.

    Returns
    -------
    Recommender, Change
        The new model, and what became of the old one, which stays as it is.

    Raises
    ------
    UnknownId
        An item is not in the model.
    SettingError
        No item would be left.

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
    kept = np.setdiff1d(np.arange(len(model.item_ids)), rows)
    popularity = np.asarray(model.popularity)[kept]
    items = model.items.select(kept, popularity)
    smaller = replace(
        model,
        items=items,
        item_ids=model.item_ids.take(kept),
        popularity=popularity,
        encoder=model.encoder.follow_items(items, kept, 0),
        seen=csr_array(as_ones(model.seen)[:, kept]),
        item_table=model.item_table and model.item_table.take(pa.array(kept)),
        guessed=model.guesses[kept],
    )
    return smaller, Change(items_removed=[model.item_ids[row] for row in rows])


def update_users(
    model: Recommender, users: TableLike | None = None, ratings: TableLike | None = None
) -> tuple[Recommender, Change]:
    """Compute new vectors of users from what is known of them now; unknown users are added.

    A model does not keep the ratings it was fitted on: pass all that is known of a user, not only
    what is new. Other users stay as they are.

    Parameters
    ----------
    model
        A fitted model.
    users
        A table: `user_id`, and any of the columns that the model knows.
    ratings
        A table `user_id, item_id, rating`, of items in the model.

    Returns
    -------
    Recommender, Change
        The new model, and what became of the old one, which stays as it is.

    Raises
    ------
    SettingError
        Neither users nor ratings are given.
    UnknownId
        A rated item is not in the model.

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
        raise SettingError("there is nothing to update", hint="pass users, ratings or both")
    _, ids, table = read_id_table(users, "user", model.columns)
    given = None
    if ratings is not None:
        rated = _read_ratings(ratings, ids, model.item_ids, model, "add_items first")
        ids, given = rated.users, rated.matrix
    assert ids is not None
    people = pad_table(table, len(ids)) if table.num_columns else [{}] * len(ids)
    user_ids, rows = assign_rows(ids.values, model.user_ids, "user", str)
    n_known = len(model.user_ids)
    vectors = np.pad(model.user_vectors, ((0, len(user_ids) - n_known), (0, 0)))
    vectors[rows] = model.encode(people, given).vectors
    seen = as_ones(model.seen)
    seen.resize(len(user_ids), len(model.item_ids))
    if given is not None:
        places = np.repeat(rows, np.diff(given.indptr)), given.indices
        seen = as_ones(seen + csr_array((np.ones_like(given.data), places), shape=seen.shape))
    return replace(model, user_ids=user_ids, user_vectors=vectors, seen=seen), Change(
        users_added=[ids[at] for at in np.flatnonzero(rows >= n_known)],
        users_changed=[ids[at] for at in np.flatnonzero(rows < n_known)],
    )


def _read_ratings(
    ratings: TableLike | None, users: Ids | None, items: Ids, model: Recommender, hint: str
) -> Ratings:
    """Read ratings of these items alone; users that are not listed come after the others."""
    if ratings is None:
        users = users or model.user_ids
        return Ratings(csr_array((len(users), len(items)), dtype=np.float32), users, items)
    kind = model.feedback.kind
    scale = model.scale if kind == "ratings" else None  # counts have no highest one
    rated = read_ratings(ratings, users, items, RatingOptions(kind=kind, scale=scale))
    if len(rated.items) > len(items):
        raise UnknownId(f"item {rated.items[len(items)]!r} is rated, but not known", hint=hint)
    return rated


def _encode_strangers(model: Recommender, rated: Ratings, users: TableLike | None) -> np.ndarray:
    """Encode the raters whom the model does not know."""
    n_known = len(model.user_ids)
    strangers = [rated.users[row] for row in range(n_known, len(rated.users))]
    if not strangers:
        return np.zeros((0, model.user_vectors.shape[1]), dtype=np.float32)
    _, ids, table = read_id_table(users, "user", model.columns)
    missing = [name for name in strangers if ids is None or name not in ids]
    if missing:
        raise UnknownId(
            f"user {missing[0]!r} rated a new item, but is not known to the model",
            hint="describe unknown raters in a user table, or leave their ratings out",
        )
    assert ids is not None
    rows = pa.array(ids.rows(strangers))
    return model.encode(pad_table(table, len(ids)).take(rows)).vectors


def _match_columns(model: Recommender, table: pa.Table, n_rows: int) -> pa.Table:
    """Return a table of new items with the columns and types of the model's."""
    if not model.item_table.num_columns:
        return table
    columns = []
    for wanted in model.item_table.schema:
        known = wanted.name in table.column_names
        column = table.column(wanted.name) if known else pa.nulls(n_rows, wanted.type)
        try:
            columns.append(column.cast(wanted.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"the item table, column {wanted.name!r}: {error}",
                hint=f"the model's items have {wanted.type} there",
            ) from None
    return pa.table(columns, schema=model.item_table.schema)


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
    if len(new):  # they start from what their content says
        content = model.features.item_content(data.items, len(old_rows))[new]
        nothing, nobody = data.ratings.matrix[:0, new], model.user_vectors[:0]
        target = RatingTarget("known", model.feedback)
        codes[new], _ = estimate_items(model, items, content, nothing, nobody, target)
    settings = settings_from(MFDCF, {**model.settings, "n_rounds": n_rounds})
    fitted = settings.fit(data, seed=seed, callback=callback, item_codes=codes)
    fitted = replace(fitted, settings=model.settings)
    return fitted, _compare(model, fitted, data, old_rows)


def _kept_order(before: Ids, now: Ids) -> np.ndarray:
    """Return the rows of `now`: first those that were there before, in the order they had."""
    rows = now.find(before.values)
    old = rows[rows >= 0]
    return np.concatenate([old, np.setdiff1d(np.arange(len(now)), old)])


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
