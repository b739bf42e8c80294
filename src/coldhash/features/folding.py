"""One group: the columns that a user has or lacks together -> a matrix of bounded width.

A row holds the numbers of each column, then a constant 1, so that a model falls back to the average
user where a group has no effect. A user has a group if at least one of its columns is known; a
column unknown to a user who has the group is filled with its mean. A user without the group has a
row of zeros.

Everything that is learned from a group costs its width squared. A group wider than `WIDEST` is
therefore folded: half of the places belong to one number each, the most frequent ones, and every
other number is added, with a sign, to a place given by a hash of its position (a count sketch).
Inner products between people are kept in expectation, and nothing has to be stored to repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from coldhash.arrays.checks import check_memory
from coldhash.features.columns import FittedColumn, Given, Value, distinct_values, map_values

if TYPE_CHECKING:
    from scipy.sparse import csr_array

WIDEST = 2048  # numbers of a group, the constant included
NARROW = 256  # a group up to this width is kept dense
_FEW = 8  # rows; so few are encoded faster without arrays
_ROWS = 1024  # rows that are encoded at once
_MANY_COLUMNS = 256  # more than this fill most places of a folded row: the matrix is dense

Encoded: TypeAlias = dict[str, tuple[np.ndarray, ...]]  # for each column, what `add_cells` takes
Matrix: TypeAlias = "np.ndarray | csr_array"  # dense where narrow, sparse where wide


@dataclass(frozen=True, eq=False)
class GroupEncoder:
    """The fitted columns of one group."""

    columns: dict[str, FittedColumn]

    @cached_property
    def width(self) -> int:
        """The number of numbers in a row, the constant included."""
        return min(sum(column.width for column in self.columns.values()) + 1, WIDEST)

    @cached_property
    def folded(self) -> bool:
        """Whether the columns are wider than `WIDEST`."""
        return sum(column.width for column in self.columns.values()) >= WIDEST

    @property
    def owners(self) -> np.ndarray:
        """Which column each number of a row belongs to; in a folded group, each to its own."""
        if self.folded:
            return np.arange(WIDEST)
        widths = [*(column.width for column in self.columns.values()), 1]
        return np.repeat(np.arange(len(widths)), widths)

    def apply(self, values: Mapping[str, Value], n_rows: int) -> tuple[Matrix, np.ndarray]:
        """Encode columns of values; returns the matrix and who has the group.

        A column that is absent from `values` is missing for everybody.
        """
        given = {n: values[n] for n in self.columns if n in values}
        has, encoded = np.zeros(n_rows, dtype=bool), None
        if n_rows > _FEW or self._some_given or not all(type(v) is list for v in given.values()):
            encoded = {n: self._encode(n, column) for n, column in given.items()}

        def fill(block: np.ndarray, start: int) -> None:
            if encoded is None:
                self._fill_few(block, has, given)
            else:
                self._fill(block, has, encoded, start)

        if not self._is_dense:
            from scipy.sparse import csr_array, vstack

            blocks = [csr_array((0, self.width), dtype=np.float32)]
            for start in range(0, n_rows, _ROWS):
                block = np.zeros((min(_ROWS, n_rows - start), self.width), np.float32)
                fill(block, start)
                blocks.append(csr_array(block))
            return csr_array(vstack(blocks)), has
        if n_rows > _ROWS:
            check_memory(4 * n_rows * self.width, f"features of {n_rows:,} people x {self.width:,}")
        matrix = np.zeros((n_rows, self.width), dtype=np.float32)
        for start in range(0, n_rows, _ROWS):
            fill(matrix[start : start + _ROWS], start)
        return matrix, has

    @cached_property
    def _is_dense(self) -> bool:
        if not self.folded:
            return self.width <= NARROW
        return self._some_given or len(self.columns) > _MANY_COLUMNS

    @cached_property
    def _some_given(self) -> bool:
        return any(isinstance(column, Given) for column in self.columns.values())

    @cached_property
    def places(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """The place and the sign of every number of each column."""
        columns = self.columns.values()
        widths = [column.width for column in columns]
        places, signs = np.arange(sum(widths)), np.ones(sum(widths), np.float32)
        if self.folded:
            # the share of the data in which each number is set; those of a vector are for everybody
            shares = [np.ones_like(c.mean) if isinstance(c, Given) else c.mean for c in columns]
            places, signs = places_of(np.concatenate(shares), WIDEST - 1)
        ends = np.cumsum(widths)[:-1]
        own = zip(np.split(places, ends), np.split(signs, ends), strict=True)
        return dict(zip(self.columns, own, strict=True))

    @cached_property
    def means(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """The places and the numbers of each column's mean."""
        means = {}
        for name, (places, signs) in self.places.items():
            distinct, inverse = np.unique(places, return_inverse=True)
            numbers = np.bincount(inverse, self.columns[name].mean * signs, len(distinct))
            means[name] = distinct, numbers.astype(np.float32)
        return means

    @cached_property
    def _placed(self) -> dict[str, tuple[list[int], list[float]]]:
        return {n: (places.tolist(), signs.tolist()) for n, (places, signs) in self.places.items()}

    def _fill_few(
        self, block: np.ndarray, has: np.ndarray, values: Mapping[str, list[Value]]
    ) -> None:
        """Fill few rows as `_fill` does, sooner than with arrays."""
        encoded = {n: map_values(self.columns[n].cells, own, n) for n, own in values.items()}
        for row, own in enumerate(block):
            known = {name: column[row] for name, column in encoded.items() if column[row]}
            for name, cells in known.items():
                places, signs = self._placed[name]
                for at, number in cells:
                    own[places[at]] += number * signs[at]
            if known:
                for name, (missing, numbers) in self.means.items():
                    if name not in known:
                        own[missing] += numbers
                own[-1] = has[row] = True

    def _encode(self, name: str, values: Value) -> tuple[np.ndarray, ...]:
        """Encode a column: the arguments of `add_cells`."""
        column, (places, signs) = self.columns[name], self.places[name]
        distinct, codes = distinct_values(values, name)
        lengths, at, numbers = column.encode(distinct, name)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(len(distinct)) if codes is None else codes.astype(np.int64)
        return rows, starts, places[at], numbers * signs[at]

    def _fill(self, block: np.ndarray, has: np.ndarray, encoded: Encoded, start: int) -> None:
        """Fill the rows from `start` on, column after column."""
        from coldhash.arrays.kernels import add_cells

        some = slice(start, start + len(block))
        has, unknown = has[some], {}
        for name, cells in encoded.items():
            known = add_cells(block, cells[0][some], *cells[1:])
            has |= known
            if not known.all():
                unknown[name] = ~known
        if not has.any():
            return
        for name in self.columns:
            missing = has if name not in encoded else unknown.get(name)
            if missing is not None:
                places, numbers = self.means[name]
                block[(missing & has).nonzero()[0][:, None], places] += numbers
        block[:, -1] = has


def places_of(weights: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a place below `width` and a sign for each number; the heaviest share with no other."""
    own = width // 2
    order = np.argsort(-weights, kind="stable")
    places, signs = np.empty(len(weights), np.int64), np.ones(len(weights), np.float32)
    places[order[:own]] = np.arange(own)
    rest = order[own:]
    hashed = mix_bits((rest.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    places[rest] = own + (hashed >> np.uint64(1)) % np.uint64(width - own)
    signs[rest] = np.where(hashed & np.uint64(1), 1, -1)
    return places, signs


def mix_bits(z: np.ndarray) -> np.ndarray:
    """Return whole numbers that look drawn, from multiples of odd ones (splitmix64)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))  # type: ignore[no-any-return]
