"""The feature encoder: people -> a matrix for each group, with a mask of who has the group.

A group is the columns that a user has or lacks together. A row of its matrix holds the numbers of
each column, then a constant 1, so that a model falls back to the average user where a group has no
effect. A user has a group if at least one of its columns is known; a column unknown to a user who
has the group is filled with its mean. A user without the group has a row of zeros.

Everything that is learned from a group costs its width squared. A group wider than `WIDEST` is
therefore folded: half of the places belong to one number each, the most frequent ones, and every
other number is added, with a sign, to a place given by a hash of its position (a count sketch).
Inner products between people are kept in expectation, and nothing has to be stored to repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from coldhash.arrays.checks import check_memory
from coldhash.features.columns import FittedColumn, Given, Value, distinct_values, map_values
from coldhash.features.columns import State as State
from coldhash.features.people import People, as_columns
from coldhash.files import Json

if TYPE_CHECKING:
    from scipy.sparse import csr_array

WIDEST = 2048  # numbers of a group, the constant included
NARROW = 256  # a group up to this width is kept dense
_FEW = 8  # rows; so few are encoded faster without arrays
_ROWS = 1024  # rows that are encoded at once
_MANY_COLUMNS = 256  # more than this fill most places of a folded row: the matrix is dense
_CONTENT = "preference/content"  # the item columns in a file: no group is called so

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
            from coldhash.arrays.kernels import add_cells

            encoded = self._encode(given, has)
        blocks: list[Any] = []
        whole = np.zeros((0, 0), np.float32)
        if not self._is_dense:
            from scipy.sparse import csr_array, vstack
        elif n_rows > _ROWS:
            check_memory(4 * n_rows * self.width, f"features of {n_rows:,} people x {self.width:,}")
        if self._is_dense:
            whole = np.zeros((n_rows, self.width), np.float32)
        for start in range(0, max(n_rows, 1), _ROWS):
            block = whole[start : start + _ROWS]
            if not self._is_dense:
                block = np.zeros((min(_ROWS, n_rows - start), self.width), np.float32)
            if encoded is None:
                self._fill_few(block, has, given)
            else:
                some = slice(start, start + _ROWS)
                for rows, *cells in encoded:
                    add_cells(block, rows[some], *cells)
                block[:, -1] = has[some]
                block[~has[some]] = 0
            if not self._is_dense:
                blocks.append(csr_array(block))
        if self._is_dense:
            return whole, has
        return blocks[0] if len(blocks) == 1 else csr_array(vstack(blocks)), has

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
        """Fill few rows as `add_cells` does, sooner than with arrays."""
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

    def _encode(self, values: Mapping[str, Value], has: np.ndarray) -> list[list[np.ndarray]]:
        """Mark who has the group; returns the arguments of `add_cells` for each column."""
        encoded, filled = [], []
        for name, column in self.columns.items():
            distinct, codes = distinct_values(values.get(name, pa.nulls(len(has))), name)
            lengths, at, numbers = column.encode(distinct, name)
            rows = np.arange(len(distinct)) if codes is None else codes.astype(np.int64)
            known = lengths[rows] > 0
            has |= known
            (places, signs), (missing, means) = self.places[name], self.means[name]
            starts = np.concatenate([[0], lengths]).cumsum()
            encoded.append([rows, starts, places[at], numbers * signs[at]])
            ends = np.array([0, len(missing), len(missing)])
            filled.append([known.astype(np.int64), ends, missing, means])
        return encoded + filled  # means last, as in `_fill_few`: sums round by their order


@dataclass(frozen=True, eq=False)
class Features:
    """Feature matrices by group, and who has each group.

    Parameters
    ----------
    matrices : dict of str to array or csr_array
        One matrix for each group, one row for each person; the last column is 1 for those who
        have the group.
    has : dict of str to array of bool
        Who has each group.
    n_rows : int
        The number of people.

    Examples
    --------
    >>> from coldhash import fit_features, read
    >>> encoder = fit_features(read("sample", n_users=100, n_items=50))
    >>> features = encoder.apply([{"age": 30}, {}])
    >>> len(features), features.has["demographics"].tolist()
    (2, [True, False])
    """

    matrices: dict[str, Matrix]
    has: dict[str, np.ndarray]
    n_rows: int

    def __len__(self) -> int:
        return self.n_rows


@dataclass(frozen=True, eq=False)
class ContentEncoder:
    """The fitted columns of the item table side by side, without constants."""

    columns: dict[str, FittedColumn]

    def apply(self, table: pa.Table, n_rows: int) -> csr_array:
        """Encode a table of items, absent columns as missing; an empty row is an unknown item."""
        from scipy.sparse import csr_array, hstack

        blocks, known = [csr_array((n_rows, 0))], set(table.column_names)
        for name, column in self.columns.items():
            values = table.column(name) if name in known else [None] * n_rows
            distinct, codes = distinct_values(values, name)
            block = column.encode_sparse(distinct, name)
            blocks.append(block if codes is None else block[codes])
        return csr_array(hstack(blocks, format="csr", dtype="float32"))


@dataclass(frozen=True, eq=False)
class FeatureEncoder:
    """What was learned about the columns of a data set: turns people into `Features`.

    Parameters
    ----------
    groups : dict of str to GroupEncoder
        The groups of user columns.
    content : ContentEncoder
        The item columns.
    labels : dict of str to dict
        What values of a column are called where they are shown.

    Examples
    --------
    >>> from coldhash import fit_features, read
    >>> encoder = fit_features(read("sample", n_users=100, n_items=50))
    >>> list(encoder.widths), list(encoder.groups["demographics"].columns)
    (['demographics'], ['age', 'gender', 'occupation', 'city'])
    """

    groups: dict[str, GroupEncoder]
    content: ContentEncoder
    labels: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def widths(self) -> dict[str, int]:
        """The width of each group, its constant included."""
        return {name: group.width for name, group in self.groups.items()}

    def apply(self, people: People) -> Features:
        """Encode people.

        Parameters
        ----------
        people : dict, list of dict, or table
            One person, several, or a pandas, polars or pyarrow table of them.

        Returns
        -------
        Features

        Raises
        ------
        DataError
            If a value is of a wrong type.

        Examples
        --------
        >>> from coldhash import fit_features, read
        >>> encoder = fit_features(read("sample", n_users=100, n_items=50))
        >>> encoder.apply({"age": 30}).matrices["demographics"].shape[0]
        1
        """
        return self.encode(*as_columns(people))

    def encode(self, columns: Mapping[str, object], n_rows: int) -> Features:
        """Encode columns of values; `apply` takes people in any form and calls this.

        Parameters
        ----------
        columns : dict of str to sequence or pyarrow array
            The values by column; a column that is not there is unknown for everybody.
        n_rows : int
            The number of people.

        Returns
        -------
        Features

        Raises
        ------
        DataError
            If a value is of a wrong type.
        """
        found = {name: group.apply(columns, n_rows) for name, group in self.groups.items()}
        matrices = {name: matrix for name, (matrix, _) in found.items()}
        return Features(matrices, {name: has for name, (_, has) in found.items()}, n_rows)

    def item_content(self, table: pa.Table, n_rows: int) -> csr_array:
        """Encode a table of items in the same way as the training items.

        Parameters
        ----------
        table : pyarrow.Table
            The item columns; a column that is not there is unknown for all items.
        n_rows : int
            The number of items.

        Returns
        -------
        csr_array of float32
            Items x features, without a constant column.

        Raises
        ------
        DataError
            If a value is of a wrong type.
        """
        return self.content.apply(table, n_rows)

    def state(self) -> tuple[dict[str, Json], dict[str, np.ndarray]]:
        """Return everything learned, for a model file.

        Returns
        -------
        json : dict
            What JSON can hold.
        arrays : dict of str to array
            The rest.
        """
        json: dict[str, Any] = {"columns": {}, "labels": self.labels, "preference": None}
        arrays: dict[str, np.ndarray] = {}
        columns = {name: group.columns for name, group in self.groups.items()}
        for title, own_columns in (columns | {_CONTENT: self.content.columns}).items():
            json["columns"][title] = {}
            for name, column in own_columns.items():
                json["columns"][title][name], own = column.state()
                arrays |= {f"{title}/{name}/{key}": array for key, array in own.items()}
        return json, arrays

    @classmethod
    def from_state(cls, json: dict[str, Json], arrays: Mapping[str, np.ndarray]) -> FeatureEncoder:
        """Rebuild an encoder from what `state` returned.

        Parameters
        ----------
        json, arrays : dict
            What `state` returned.

        Returns
        -------
        FeatureEncoder

        Raises
        ------
        ModelFileError
            If an array is missing, or does not fit the others.
        """
        facts: dict[str, Any] = {**json}  # as `state` wrote them, or else an error follows
        columns: dict[str, dict[str, FittedColumn]] = {}
        for group, described in facts["columns"].items():
            columns[group] = {
                name: FittedColumn.restore(settings, arrays, f"{group}/{name}/")
                for name, settings in described.items()
            }
        content = ContentEncoder(columns.pop(_CONTENT))
        groups = {name: GroupEncoder(own) for name, own in columns.items()}
        return cls(groups, content, facts["labels"])

    def example(self) -> dict[str, object]:
        """Return an example of a person with a value in every column.

        Returns
        -------
        dict of str to value
            One value for each user column, as `apply` takes it.
        """
        columns = chain.from_iterable(group.columns.items() for group in self.groups.values())
        return {name: column.example() for name, column in columns}


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
