"""Learn the forms of columns: from a whole column, or from what was counted of its stretches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from coldhash.errors import DataError
from coldhash.features.columns import dense_block, distinct_values, sparse_block
from coldhash.features.forms import FittedColumn, Given, Knots, Labels, Standard, Words

if TYPE_CHECKING:
    from coldhash.data import plan  # only its names


@dataclass(frozen=True, eq=False)
class Tally:
    """The distinct values of a column, and how often each occurs (None: one row each)."""

    values: Sequence[Any]
    counts: np.ndarray | None


def fit_column(spec: plan.Column, column: pa.ChunkedArray, name: str) -> FittedColumn:
    """Learn one column from the training part."""
    return fit_block(spec, column, name)[0]


def fit_block(
    spec: plan.Column, column: pa.ChunkedArray, name: str
) -> tuple[FittedColumn, csr_array]:
    """Learn one column, and encode it."""
    values, codes = distinct_values(column)
    counts = np.bincount(codes, minlength=len(values)) if codes is not None else None
    fitted, block = _fit_tally(spec, Tally(values, counts), name)
    return fitted, block if codes is None else block[codes]


def count_values(spec: plan.Column, column: pa.ChunkedArray, name: str, alone: bool) -> Tally:
    """Count the values of one stretch of a column, small enough to be sent to who adds them up.

    Lists are counted by value and vectors stand for their mean, unless the stretch is `alone`.
    """
    values, codes = distinct_values(column)
    if codes is not None:
        return Tally(values, np.bincount(codes, minlength=len(values)))
    if alone:
        return Tally(values, None)
    if spec.kind == "vector":
        block, known = dense_block(Given.fit(values), values, name)
        mean = block[known].mean(axis=0, dtype=np.float64) if known.any() else None
        return Tally([mean], np.array([known.sum()]))
    counted = Counter(map(_hashable, values))
    return Tally(list(counted), np.array(list(counted.values())))


def fit_tallies(spec: plan.Column, tallies: Sequence[Tally], name: str) -> FittedColumn:
    """Learn one column from what was counted, stretch by stretch."""
    if len(tallies) == 1:
        return _fit_tally(spec, tallies[0], name)[0]
    if spec.kind == "vector":
        values = [value for tally in tallies for value in tally.values]
        counts = np.concatenate([tally.counts for tally in tallies if tally.counts is not None])
        return _fit_tally(spec, Tally(values, counts), name)[0]
    total: dict[Any, int] = {}
    for tally in tallies:
        assert tally.counts is not None
        for value, count in zip(tally.values, tally.counts.tolist(), strict=True):
            total[value] = total.get(value, 0) + count
    merged = Tally(list(total), np.array(list(total.values()), dtype=np.int64))
    return _fit_tally(spec, merged, name)[0]


def _fit_tally(spec: plan.Column, tally: Tally, name: str) -> tuple[FittedColumn, csr_array]:
    """Learn a column; gives also the numbers of each distinct value."""
    try:
        form = _fit_form(spec, tally.values, tally.counts)
    except DataError as error:
        raise DataError(f"column {name!r}: {error.message}", hint=error.hint) from None
    block = sparse_block(form, tally.values, name)
    counts = np.ones(len(tally.values)) if tally.counts is None else tally.counts
    weights = counts.astype(np.float64)
    weights[np.diff(block.indptr) == 0] = 0.0
    mean = (weights @ block) / max(weights.sum(), 1.0)
    return replace(form, mean=mean.astype(np.float32)), block


def _fit_form(spec: plan.Column, values: Sequence[Any], counts: np.ndarray | None) -> FittedColumn:
    if spec.kind == "vector":
        return Given.fit(values)
    if counts is None:  # lists, which cannot be counted by value
        weighed = Counter(map(_hashable, values))
    else:
        weighed = Counter(dict(zip(values, counts.tolist(), strict=True)))
    if spec.kind == "category" or spec.kind == "multi-label":
        return Labels.fit(spec, weighed)
    if spec.kind == "text":
        return Words.fit(spec, weighed)
    return Knots.fit(spec, weighed) if spec.method == "buckets" else Standard.fit(weighed)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | np.ndarray) else value
