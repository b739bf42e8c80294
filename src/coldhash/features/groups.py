"""Groups: the plan's columns together, with a mask that says who has which group.

A group is a matrix, one row per user: the blocks of its columns, then a constant 1, so that a group
that says nothing falls back to the average user. A user has a group if at least one of its columns
is known; a column unknown to a user who has the group is filled with its average. A user without
the group has a row of zeros. A group that would be wider than `WIDEST` is folded to that width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_array, hstack

from coldhash.arrays.checks import take
from coldhash.errors import ModelFileError
from coldhash.features.columns import (
    columns_state,
    dense_block,
    distinct_values,
    example_value,
    sparse_block,
    stored_columns,
)
from coldhash.features.content import ContentEncoder
from coldhash.features.folding import WIDEST, Fold
from coldhash.features.forms import FittedColumn
from coldhash.features.people import as_columns
from coldhash.features.preference import (
    PREFERENCE,
    PREFERENCE_FORMS,
    PreferenceMap,
    preference_arrays,
)

NARROW = 256  # a group up to this width is kept dense
CONTENT = "preference/content/"  # where a file keeps the item columns: no group is called so

Matrix: TypeAlias = Any  # np.ndarray where narrow, csr_array where wide: both know @ and .T
State = tuple[dict[str, Any], dict[str, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Features:
    """Content matrices by group, and who has each group.

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
class GroupEncoder:
    """The fitted columns of one group."""

    columns: dict[str, FittedColumn]
    folded: bool = False

    @classmethod
    def of(cls, columns: dict[str, FittedColumn]) -> GroupEncoder:
        """Make a group of columns, folded if they are wider than `WIDEST`."""
        return cls(columns, sum(column.width for column in columns.values()) >= WIDEST)

    @cached_property
    def width(self) -> int:
        """How many numbers the group has, the constant included."""
        if self.folded:
            return WIDEST
        return sum(column.width for column in self.columns.values()) + 1

    @property
    def means(self) -> list[np.ndarray]:
        """What stands for an unknown value, by block of numbers: a column, or all if folded."""
        return [self._fold.mean()] if self.folded else [c.mean for c in self.columns.values()]

    @cached_property
    def _fold(self) -> Fold:
        return Fold(self.columns)

    def apply(self, values: Mapping[str, Any], n_rows: int) -> tuple[Matrix, np.ndarray]:
        """Encode columns of values, absent ones as missing."""
        if self.folded:
            return self._fold.apply(values, n_rows)
        assemble = _dense if self.width <= NARROW else _sparse
        nothing = [None] * n_rows
        columns = [
            (name, column, *distinct_values(values.get(name, nothing)))
            for name, column in self.columns.items()
        ]
        return assemble(columns, n_rows)


@dataclass(frozen=True, eq=False)
class FeatureEncoder:
    """What was learned about the columns: turns people into `Features`.

    Examples
    --------
    >>> from coldhash import fit_features, read
    >>> encoder = fit_features(read("sample", n_users=100, n_items=50))
    >>> list(encoder.widths), list(encoder.groups["demographics"].columns)
    (['demographics', 'preference'], ['age', 'gender', 'occupation', 'city'])
    """

    groups: dict[str, GroupEncoder]
    preference: PreferenceMap | None
    content: ContentEncoder | None = None  # of items

    @property
    def widths(self) -> dict[str, int]:
        """How many numbers each group has, its constant included."""
        widths = {name: group.width for name, group in self.groups.items()}
        if self.preference is not None:
            widths[PREFERENCE] = self.preference.width + 1
        return widths

    def apply(self, people: Any, ratings: csr_array | None = None) -> Features:
        """Encode people: one dict, a list of dicts, or a table.

        From `ratings` (people x items), if given, the preference group is made.
        """
        columns, n_rows = as_columns(people)
        if not columns and ratings is not None:  # a table without columns does not know its length
            n_rows = ratings.shape[0]
        return self.encode(columns, n_rows, ratings)

    def encode(
        self, columns: Mapping[str, Any], n_rows: int, ratings: csr_array | None
    ) -> Features:
        """Encode columns of values; see `apply`."""
        matrices: dict[str, Matrix] = {}
        has: dict[str, np.ndarray] = {}
        for name, group in self.groups.items():
            matrices[name], has[name] = group.apply(columns, n_rows)
        if self.preference is not None:
            matrices[PREFERENCE], has[PREFERENCE] = self._preferences(ratings, n_rows)
        return Features(matrices, has, n_rows)

    def item_content(self, table: Any, n_rows: int) -> csr_array:
        """Encode a table of items as the training items were; without a constant."""
        if self.content is None:
            return csr_array((n_rows, 0), dtype=np.float32)
        return self.content.apply({n: table.column(n) for n in table.column_names}, n_rows)

    def _preferences(self, ratings: csr_array | None, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        assert self.preference is not None
        matrix = np.zeros((n_rows, self.preference.width + 1), dtype=np.float32)
        if ratings is None:
            return matrix, np.zeros(n_rows, dtype=bool)
        matrix[:, :-1], has = self.preference.apply(ratings)
        matrix[:, -1] = has
        return matrix, has

    def state(self) -> State:
        """Give everything learned, as JSON and arrays, for a model file."""
        json: dict[str, Any] = {"groups": {}, "preference": None, "content": None}
        folded = [name for name, group in self.groups.items() if group.folded]
        json |= {"folded": folded} if folded else {}
        arrays: dict[str, np.ndarray] = {}
        for group_name, group in self.groups.items():
            json["groups"][group_name], more = columns_state(group.columns)
            arrays |= {f"{group_name}/{name}": array for name, array in more.items()}
        if self.preference is not None:
            json["preference"] = {
                "highest": self.preference.highest,
                "reduced": self.preference.reduced,
            }
            arrays |= {f"preference/{n}": array for n, array in self.preference.arrays().items()}
        if self.content is not None:
            json["content"], more = columns_state(self.content.columns)
            arrays |= {f"{CONTENT}{name}": array for name, array in more.items()}
        return json, arrays

    @classmethod
    def from_state(
        cls, json: dict[str, Any], arrays: Mapping[str, np.ndarray], n_items: int
    ) -> FeatureEncoder:
        """Rebuild an encoder from what `state` gave."""
        groups = {
            name: GroupEncoder(
                stored_columns(columns, arrays, f"{name}/"), name in json.get("folded", ())
            )
            for name, columns in json["groups"].items()
        }
        preference, content = None, None
        if json["preference"] is not None:
            names = preference_arrays(json["preference"]["reduced"])
            forms = {f"preference/{name}": PREFERENCE_FORMS[name] for name in names}
            own: dict[str, Any] = dict(zip(names, take(arrays, forms).values(), strict=True))
            preference = PreferenceMap(**own, **json["preference"])
            if len(preference.item_vectors) != n_items:
                raise ModelFileError(f"'preference' is of {len(preference.item_vectors)} items")
        if json["content"] is not None:
            content = ContentEncoder(stored_columns(json["content"], arrays, CONTENT))
        return cls(groups, preference, content)

    def example(self) -> dict[str, Any]:
        """Return a person of whom every field is known."""
        return {
            name: example_value(column)
            for group in self.groups.values()
            for name, column in group.columns.items()
        }


Part = tuple[str, FittedColumn, Sequence[Any], np.ndarray | None]


def _dense(parts: list[Part], n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    width = sum(column.width for _, column, _, _ in parts) + 1
    matrix = np.zeros((n_rows, width), dtype=np.float32)
    has = np.zeros(n_rows, dtype=bool)
    unknown = []
    end = 0
    for name, column, values, codes in parts:
        start, end = end, end + column.width
        block, known = dense_block(column, values, name)
        matrix[:, start:end] = block if codes is None else block[codes]
        known = known if codes is None else known[codes]
        has |= known
        unknown.append((start, end, ~known, column.mean))
    for start, end, missing, mean in unknown:
        if missing.any():
            matrix[has & missing, start:end] = mean
    matrix[:, -1] = has
    return matrix, has


def _sparse(parts: list[Part], n_rows: int) -> tuple[csr_array, np.ndarray]:
    blocks, known = [], []
    for name, column, values, codes in parts:
        block = sparse_block(column, values, name)
        blocks.append(block if codes is None else block[codes])
        known.append(np.diff(blocks[-1].indptr) > 0)
    has = np.logical_or.reduce(known, initial=False) & np.ones(n_rows, dtype=bool)
    filled = []
    for block, column_known, (_, column, _, _) in zip(blocks, known, parts, strict=True):
        fill = csr_array((has & ~column_known).astype(np.float32)[:, None])
        filled.append(block + fill @ csr_array(column.mean[None, :]))
    return csr_array(hstack([*filled, csr_array(has.astype(np.float32)[:, None])])), has
