"""Bound the width of a group: the most frequent columns keep their place, the others share.

Everything that is learned from a group costs its width squared. A group wider than `WIDEST` is
therefore projected: half of the places belong to one column each, and every other column is added,
with a sign, to a place given by a hash of its position (a count sketch). Inner products between
people are kept in expectation, and nothing has to be stored to repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from coldhash.arrays.compiled import compiled
from coldhash.arrays.memory import check_memory
from coldhash.features.columns import distinct_values, encode_values
from coldhash.features.forms import FittedColumn, Given, Standard

WIDEST = 2048  # numbers of a group, the constant included
ROWS = 1024  # rows that are folded at once
MANY = 256  # more columns than this fill most places of a row: the matrix is dense

Folded = tuple[np.ndarray, np.ndarray, np.ndarray]  # starts of rows, places, signed numbers


class Fold:
    """The place and the sign of every number that the columns of a wide group give."""

    def __init__(self, columns: Mapping[str, FittedColumn]) -> None:
        self.columns = columns
        weights = np.concatenate([_weights(column) for column in columns.values()])
        self.places, self.signs = places_of(weights, WIDEST - 1)
        ends = np.cumsum([0, *(column.width for column in columns.values())])
        self._starts = dict(zip(columns, ends.tolist(), strict=False))
        self._dense = len(columns) > MANY or any(isinstance(c, Given) for c in columns.values())

    def apply(self, values: Mapping[str, Any], n_rows: int) -> tuple[Any, np.ndarray]:
        """Encode columns of values, absent ones as missing; see `GroupEncoder.apply`."""
        given = {name: self._encoded(name, values[name]) for name in self.columns if name in values}
        has = np.zeros(n_rows, dtype=bool)
        if self._dense:
            check_memory(4 * n_rows * WIDEST, f"{len(self.columns):,} columns of {n_rows:,} people")
        dense = np.zeros((n_rows, WIDEST), dtype=np.float32) if self._dense else None
        blocks = []
        for start in range(0, n_rows, ROWS):
            some = slice(start, start + ROWS)
            block = np.zeros((len(has[some]), WIDEST), np.float32) if dense is None else dense[some]
            chosen = {name: (codes[some], *cells) for name, (codes, cells) in given.items()}
            self._fill(block, has[some], chosen)
            if dense is None:
                blocks.append(csr_array(block))
        if dense is not None:
            return dense, has
        return csr_array(vstack([csr_array((0, WIDEST), dtype=np.float32), *blocks])), has

    def mean(self) -> np.ndarray:
        """Give the numbers of somebody of whom nothing is known, without the constant."""
        total = np.zeros(WIDEST - 1, dtype=np.float32)
        for name in self.columns:
            _, places, numbers = self._mean(name)
            total[places] += numbers
        return total

    def _encoded(self, name: str, values: Any) -> tuple[np.ndarray, Folded]:
        distinct, codes = distinct_values(values)
        lengths, at, numbers = encode_values(self.columns[name], distinct, name)
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        rows = np.arange(len(distinct)) if codes is None else codes
        at = at + self._starts[name]
        return rows.astype(np.int64), (starts, self.places[at], numbers * self.signs[at])

    def _fill(self, block: np.ndarray, has: np.ndarray, given: Mapping[str, Any]) -> None:
        """Add the numbers of every column up, in the order of the columns."""
        unknown = {}
        for name, (codes, *encoded) in given.items():
            known = _add(block, codes, *encoded)
            has |= known
            if not known.all():
                unknown[name] = ~known
        if not has.any():
            return
        for name in self.columns:
            missing = has if name not in given else unknown.get(name)
            if missing is not None:
                _, places, numbers = self._mean(name)
                rows = np.flatnonzero(missing & has)
                if len(rows) and len(places):
                    block[rows[:, None], places] += numbers
        block[:, -1] = has

    def _mean(self, name: str) -> Folded:
        mean, start = self.columns[name].mean, self._starts[name]
        at = slice(start, start + len(mean))
        places, inverse = np.unique(self.places[at], return_inverse=True)
        numbers = np.bincount(inverse, mean * self.signs[at], len(places)).astype(np.float32)
        return np.zeros(0, np.int64), places, numbers


def places_of(weights: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Give each column a place below `width` and a sign; the heaviest have a place of their own."""
    own = width // 2
    order = np.argsort(-weights, kind="stable")
    places, signs = np.empty(len(weights), np.int64), np.ones(len(weights), np.float32)
    places[order[:own]] = np.arange(own)
    rest = order[own:]
    hashed = _mixed(rest.astype(np.uint64))
    places[rest] = own + (hashed >> np.uint64(1)) % np.uint64(width - own)
    signs[rest] = np.where(hashed & np.uint64(1), 1, -1)
    return places, signs


def _mixed(values: np.ndarray) -> np.ndarray:
    """Hash whole numbers (splitmix64)."""
    z = (values + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _weights(column: FittedColumn) -> np.ndarray:
    """Say how much of the data each number of a column stands for."""
    if isinstance(column, Standard | Given):  # not shares: every one is there for everybody
        return np.ones(column.width, dtype=np.float32)
    return column.mean


@compiled(nogil=True)
def _add(block, codes, starts, places, numbers):  # type: ignore[no-untyped-def]
    """Add the numbers of rows up, and say which rows have any."""
    known = np.zeros(len(codes), np.bool_)
    for row in range(len(codes)):
        begin, end = starts[codes[row]], starts[codes[row] + 1]
        known[row] = end > begin
        for entry in range(begin, end):
            block[row, places[entry]] += numbers[entry]
    return known
