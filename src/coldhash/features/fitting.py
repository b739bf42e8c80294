"""Fit features to the training part of a data set, whole or in partitions; describe a data set.

Of every partition, the values of each column are counted; the counts are merged, and the column is
fitted to them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa

from coldhash.data.dataset import Dataset, UserRecords, is_described
from coldhash.data.plan import Column, FeaturePlan, describe_columns
from coldhash.features.columns import FORM_OF, FittedColumn, Given, Value, distinct_values
from coldhash.features.groups import ContentEncoder, FeatureEncoder, GroupEncoder
from coldhash.features.people import as_columns
from coldhash.partitions import MemoryPartitions, Partitions


def fit_features(data: Dataset) -> FeatureEncoder:
    """Fit a feature encoder to the training part.

    Parameters
    ----------
    data : Dataset
        The training part; its plan defines which columns become which features.

    Returns
    -------
    FeatureEncoder

    Raises
    ------
    DataError
        If a column holds a value that its kind does not allow.

    Examples
    --------
    >>> from coldhash import read
    >>> encoder = fit_features(read("sample", n_users=100, n_items=50))
    >>> one = encoder.apply({"age": 30, "city": "Atlantis"})
    >>> bool(one.has["demographics"][0])
    True
    """
    return learn_features(MemoryPartitions(data.records()), data.plan, data.items)


def learn_features(users: Partitions, plan: FeaturePlan, items: pa.Table) -> FeatureEncoder:
    """Fit a feature encoder to partitions of users."""
    specs = [(group, name, own[name]) for group, own in plan.users.items() for name in own]

    def count(records: UserRecords) -> list[Counter[Value]]:
        return [count_values(spec, records.table.column(name), name) for _, name, spec in specs]

    totals: list[Counter[Value]] = [Counter() for _ in specs]
    for counted in users.map(count, users.records) if specs else ():
        for total, counts in zip(totals, counted, strict=True):
            total.update(counts)
    fitted: dict[str, dict[str, FittedColumn]] = {group: {} for group in plan.users}
    for (group, name, spec), total in zip(specs, totals, strict=True):
        fitted[group][name] = fit_mean(fit_column(spec, total, name), total, name)
    groups = {group: GroupEncoder(columns) for group, columns in fitted.items()}
    return FeatureEncoder(groups, fit_content(plan, items), plan.labels)


def fit_content(plan: FeaturePlan, items: pa.Table) -> ContentEncoder:
    """Fit the item columns, without their means: nothing replaces a missing value."""
    specs = {name: spec for columns in plan.items.values() for name, spec in columns.items()}
    counts = {name: count_values(spec, items.column(name), name) for name, spec in specs.items()}
    return ContentEncoder({name: fit_column(specs[name], counts[name], name) for name in specs})


def count_values(spec: Column, column: pa.ChunkedArray, name: str) -> Counter[Value]:
    """Count the values of a column; vectors are reduced to their mean, and how many there are."""
    values, codes = distinct_values(column, name)
    if codes is not None:
        counts = np.bincount(codes, minlength=len(values)).tolist()
        return Counter(dict(zip(values, counts, strict=True)))
    if spec.kind != "vector":
        return Counter(None if value is None else tuple(value) for value in values)
    form = Given.fit(spec, values, name)
    lengths, _, numbers = form.encode(values, name)
    n_known = np.count_nonzero(lengths)
    mean = numbers.reshape(n_known, form.width).mean(axis=0, dtype=np.float64) if n_known else ()
    return Counter({tuple(mean): n_known})


def fit_column(spec: Column, counted: Counter[Value], name: str) -> FittedColumn:
    """Fit a column to its values."""
    return FORM_OF[spec.kind].fit(spec, counted, name)  # type: ignore[attr-defined, no-any-return]


def fit_mean(column: FittedColumn, counted: Counter[Value], name: str) -> FittedColumn:
    """Fit what replaces a missing value of a column: the average of those that are known."""
    lengths, columns, numbers = column.encode(list(counted), name)
    counts = np.fromiter(counted.values(), np.int64)
    n_known = counts[lengths > 0].sum()
    mean = np.bincount(columns, numbers * np.repeat(counts, lengths), column.width)
    return replace(column, mean=(mean / max(n_known, 1)).astype(np.float32))


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
    encoder, columns = fit_features(data), as_columns(data.users)[0]
    widths, has = encoder.widths, encoder.encode(columns, n_users).has
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
        "groups": {n: {"width": w, "users": int(has[n].sum())} for n, w in widths.items()},
        "plan": data.plan.to_toml(),
    }
