"""Describe a data set: counts, sparsity, columns, groups and what is missing."""

from __future__ import annotations

from itertools import islice

import numpy as np

from coldhash.data.dataset import Dataset, is_described
from coldhash.data.plan import describe_columns
from coldhash.features.fitting import fit_features


def describe(data: Dataset) -> dict[str, object]:
    """Describe a data set in plain values, ready for JSON.

    Parameters
    ----------
    data : Dataset
        The data set.

    Returns
    -------
    dict
        Counts of users, items and ratings, sparsity and scale; what the ratings are, which of them
        make an item a favourite, and how many do; for every column its type, missing and distinct
        values, what it becomes or why it is left out, and how often each value occurs that the plan
        has a label for; for every feature group its width and
        users; and the plan as TOML.

    Examples
    --------
    >>> from coldhash import read
    >>> found = describe(read("sample", n_users=100, n_items=50))
    >>> found["users"], found["items"], list(found["user_columns"])
    (100, 50, ['age', 'gender', 'occupation', 'city'])
    """
    ratings = data.ratings
    n_users, n_items = ratings.matrix.shape
    encoder = fit_features(data)
    features, widths = encoder.apply(data.users, ratings.matrix), encoder.widths.items()
    counted = zip(*np.unique(ratings.matrix.data, return_counts=True), strict=True)
    return {
        "name": data.name,
        "users": n_users,
        "users_described": int(is_described(data.users, n_users).sum()),
        "users_with_ratings": int((ratings.per_user > 0).sum()),
        "items": n_items,
        "items_described": int(is_described(data.items, n_items).sum()),
        "items_rated": int((ratings.per_item > 0).sum()),
        "ratings": len(ratings),
        "sparsity": round(100 * ratings.sparsity, 2),
        "scale": list(ratings.scale),
        "feedback": ratings.feedback.kind,
        "favourite": ratings.feedback.rule,
        "favourites": int(ratings.favourites.sum()),
        "times": ratings.times is not None,
        "rating_counts": {f"{value:g}": int(count) for value, count in islice(counted, 20)},
        "user_columns": describe_columns(data.users, data.plan.users, data.plan.labels),
        "item_columns": describe_columns(data.items, data.plan.items, data.plan.labels),
        "groups": {n: {"width": w, "users": int(features.has[n].sum())} for n, w in widths},
        "plan": data.plan.to_toml(),
    }
