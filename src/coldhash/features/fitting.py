"""Fit features to the training part of a data set, whole or in partitions of users.

Of every partition, the values of each column are counted; the counts are merged, and the column is
fitted to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from coldhash.data.dataset import Dataset, UserRecords
from coldhash.data.feedback import Scale
from coldhash.data.plan import Column, FeaturePlan
from coldhash.errors import DataError
from coldhash.features.columns import (
    FORM_OF,
    FittedColumn,
    Given,
    Value,
    ValueCounts,
    distinct_values,
)
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
    groups, alone = plan.users, len(users) == 1

    def count(records: UserRecords) -> dict[tuple[str, str], ValueCounts]:
        return {
            (group, name): count_values(spec, records.table.column(name), name, alone)
            for group, columns in groups.items()
            for name, spec in columns.items()
        }

    counted = list(users.map(count, users.records)) if groups else []
    return {
        group: GroupEncoder.of(
            {
                name: fit_column(spec, _merge(spec, [part[group, name] for part in counted]), name)
                for name, spec in columns.items()
            }
        )
        for group, columns in groups.items()
    }


def fit_content(plan: FeaturePlan, items: pa.Table) -> ContentEncoder:
    """Fit the item columns."""
    return ContentEncoder(
        {
            name: fit_column(spec, _count(*distinct_values(items.column(name))), name)
            for columns in plan.items.values()
            for name, spec in columns.items()
        }
    )


def count_values(spec: Column, column: pa.ChunkedArray, name: str, alone: bool) -> ValueCounts:
    """Count the values of a column in one partition.

    Unless the partition is `alone`, lists are counted by value and vectors reduced to their mean:
    small enough to be sent from a worker.
    """
    values, codes = distinct_values(column)
    if codes is not None or alone:
        return _count(values, codes)
    if spec.kind == "vector":
        form = Given.fit(spec, _count(values, None))
        lengths, _, numbers = form.encode(values, name)
        n_known = np.count_nonzero(lengths)
        known = numbers.reshape(n_known, form.width)
        mean = known.mean(axis=0, dtype=np.float64) if n_known else None
        return ValueCounts([mean], np.array([n_known]))
    counted = Counter(tuple(v) if isinstance(v, list | np.ndarray) else v for v in values)
    return ValueCounts(list(counted), np.array(list(counted.values())))


def _count(values: Sequence[Value], codes: np.ndarray | None) -> ValueCounts:
    """Count what `distinct_values` returned."""
    if codes is None:
        return ValueCounts(values, np.ones(len(values), np.int64))
    return ValueCounts(values, np.bincount(codes, minlength=len(values)))


def _merge(spec: Column, parts: Sequence[ValueCounts]) -> ValueCounts:
    """Add up the counts of all partitions."""
    if len(parts) == 1:
        return parts[0]
    pairs = [pair for part in parts for pair in part.pairs()]
    if spec.kind != "vector":
        total: Counter[Value] = Counter()
        for value, count in pairs:
            total[value] += count
        pairs = list(total.items())
    return ValueCounts([value for value, _ in pairs], np.array([count for _, count in pairs]))


def fit_column(spec: Column, counted: ValueCounts, name: str) -> FittedColumn:
    """Fit a column to its values."""
    try:
        form: FittedColumn = FORM_OF[spec.kind].fit(spec, counted)  # type: ignore[attr-defined]
    except DataError as error:
        raise DataError(f"column {name!r}: {error.message}", hint=error.hint) from None
    lengths, columns, numbers = form.encode(counted.values, name)
    weights = np.repeat(counted.counts, lengths)
    n_known = counted.counts[lengths > 0].sum()
    mean = np.bincount(columns, numbers * weights, form.width) / max(n_known, 1)
    return replace(form, mean=mean.astype(np.float32))
