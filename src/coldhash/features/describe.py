"""Describe a data set: counts, sparsity, columns, groups and what is missing."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from coldhash.data.dataset import Dataset, is_described
from coldhash.data.plan import Groups, Labels, guess_column
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
    features = encoder.apply(data.users, ratings.matrix)
    values, counts = np.unique(ratings.matrix.data, return_counts=True)
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
        "rating_counts": dict(
            zip(map("{:g}".format, values[:20]), counts[:20].tolist(), strict=True)
        ),
        "user_columns": _columns(data.users, data.plan.users, data.plan.labels),
        "item_columns": _columns(data.items, data.plan.items, data.plan.labels),
        "groups": {
            name: {"width": width, "users": int(features.has[name].sum())}
            for name, width in encoder.widths.items()
        },
        "plan": data.plan.to_toml(),
    }


def _columns(table: pa.Table, groups: Groups, labels: Labels) -> dict[str, dict[str, object]]:
    kinds = {name: spec.kind for columns in groups.values() for name, spec in columns.items()}
    return {
        name: {
            "type": str(column.type),
            "missing": column.null_count,
            "distinct": None
            if pa.types.is_nested(column.type)
            else len(column.drop_null().unique()),
            "becomes": kinds.get(name) or f"left out: {_why_not(name, column)}",
            **({"values": _count_labels(column, labels[name])} if name in labels else {}),
        }
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def _count_labels(column: pa.ChunkedArray, labels: dict[str, str]) -> dict[str, int]:
    """Count the values that have labels."""
    counts = Counter(map(str, column.drop_null().to_pylist()))
    return {label: counts[value] for value, label in labels.items()}


def _why_not(name: str, column: pa.ChunkedArray) -> str:
    """Return why a column is in no group."""
    guess = guess_column(name, column)
    return guess if isinstance(guess, str) else "not in the plan"
