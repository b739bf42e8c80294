"""Fit features to the training part of a data set, whole or in partitions of users.

Of every partition, the values of each column are counted; the counts are merged, and the column is
fitted to them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa

from coldhash.data.dataset import Dataset, UserRecords
from coldhash.data.feedback import Scale
from coldhash.data.plan import Column, FeaturePlan
from coldhash.errors import DataError
from coldhash.features.columns import FORM_OF, FittedColumn, Given, Value, distinct_values
from coldhash.features.folding import GroupEncoder
from coldhash.features.groups import ContentEncoder, FeatureEncoder
from coldhash.features.preference import fit_preference
from coldhash.partitions import MemoryPartitions, Partitions


def fit_features(data: Dataset, seed: int = 0) -> FeatureEncoder:
    """Fit a feature encoder to the training part.

    Parameters
    ----------
    data : Dataset
        The training part; its plan defines which columns become which features.
    seed : int
        Seed of the projection of wide preferences.

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
    >>> bool(one.has["demographics"][0]), bool(one.has["preference"][0])
    (True, False)
    """
    users = MemoryPartitions(data.records())
    return learn_features(users, data.plan, data.items, data.scale, seed)


def learn_features(
    users: Partitions, plan: FeaturePlan, items: pa.Table, scale: Scale, seed: int
) -> FeatureEncoder:
    """Fit a feature encoder to partitions of users."""
    groups = _fit_groups(users, plan)
    encoder = fit_content(plan, items)
    preference = None
    if plan.preference is not None:
        rng, content = np.random.default_rng(seed), encoder.apply(items, items.num_rows)
        preference = fit_preference(users, content, scale, plan.preference.max_width, rng)
    return FeatureEncoder(groups, preference, encoder, plan.labels)


def _fit_groups(users: Partitions, plan: FeaturePlan) -> dict[str, GroupEncoder]:
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
    return {group: GroupEncoder(columns) for group, columns in fitted.items()}


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
    form = Given.fit(spec, values)
    lengths, _, numbers = form.encode(values, name)
    n_known = np.count_nonzero(lengths)
    mean = numbers.reshape(n_known, form.width).mean(axis=0, dtype=np.float64) if n_known else ()
    return Counter({tuple(mean): n_known})


def fit_column(spec: Column, counted: Counter[Value], name: str) -> FittedColumn:
    """Fit a column to its values."""
    try:
        return FORM_OF[spec.kind].fit(spec, counted)  # type: ignore[attr-defined, no-any-return]
    except DataError as error:
        raise DataError(f"column {name!r}: {error.message}", hint=error.hint) from None


def fit_mean(column: FittedColumn, counted: Counter[Value], name: str) -> FittedColumn:
    """Fit what replaces a missing value of a column: the average of those that are known."""
    lengths, columns, numbers = column.encode(list(counted), name)
    counts = np.fromiter(counted.values(), np.int64)
    n_known = counts[lengths > 0].sum()
    mean = np.bincount(columns, numbers * np.repeat(counts, lengths), column.width)
    return replace(column, mean=(mean / max(n_known, 1)).astype(np.float32))
