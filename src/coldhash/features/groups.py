"""The feature encoder: people -> a matrix for each group, with a mask of who has the group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldhash.errors import ModelFileError
from coldhash.features.columns import FittedColumn, State, distinct_values, restore_column
from coldhash.features.folding import GroupEncoder, Matrix
from coldhash.features.people import People, as_columns
from coldhash.features.preference import PREFERENCE, PreferenceMap
from coldhash.files import Json

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["ContentEncoder", "FeatureEncoder", "Features", "GroupEncoder", "Matrix", "State"]

_CONTENT = f"{PREFERENCE}/content"  # the item columns in a file: no group is called so


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

    @property
    def width(self) -> int:
        """The number of numbers that an item becomes."""
        return sum(column.width for column in self.columns.values())

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
    preference : PreferenceMap or None
        How ratings become the preference group, if the plan has one.
    content : ContentEncoder
        The item columns.
    labels : dict of str to dict
        What values of a column are called where they are shown.

    Examples
    --------
    >>> from coldhash import fit_features, read
    >>> encoder = fit_features(read("sample", n_users=100, n_items=50))
    >>> list(encoder.widths), list(encoder.groups["demographics"].columns)
    (['demographics', 'preference'], ['age', 'gender', 'occupation', 'city'])
    """

    groups: dict[str, GroupEncoder]
    preference: PreferenceMap | None
    content: ContentEncoder
    labels: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def widths(self) -> dict[str, int]:
        """The width of each group, its constant included."""
        widths = {name: group.width for name, group in self.groups.items()}
        if self.preference is not None:
            widths[PREFERENCE] = self.preference.width + 1
        return widths

    def apply(self, people: People, ratings: csr_array | None = None) -> Features:
        """Encode people.

        Parameters
        ----------
        people : dict, list of dict, or table
            One person, several, or a pandas, polars or pyarrow table of them.
        ratings : csr_array, optional
            People x items; the preference group is computed from it.

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
        columns, n_rows = as_columns(people)
        if not columns and ratings is not None:  # a table without columns does not know its length
            n_rows = ratings.shape[0]
        return self.encode(columns, n_rows, ratings)

    def encode(
        self, columns: Mapping[str, object], n_rows: int, ratings: csr_array | None
    ) -> Features:
        """Encode columns of values; `apply` takes people in any form and calls this.

        Parameters
        ----------
        columns : dict of str to sequence or pyarrow array
            The values by column; a column that is not there is unknown for everybody.
        n_rows : int
            The number of people.
        ratings : csr_array or None
            People x items; the preference group is computed from it.

        Returns
        -------
        Features

        Raises
        ------
        DataError
            If a value is of a wrong type.
        """
        matrices: dict[str, Matrix] = {}
        has: dict[str, np.ndarray] = {}
        for name, group in self.groups.items():
            matrices[name], has[name] = group.apply(columns, n_rows)
        if self.preference is not None:
            matrix = np.zeros((n_rows, self.preference.width + 1), dtype=np.float32)
            if ratings is not None:
                matrix[:, :-1], matrix[:, -1] = self.preference.apply(ratings)
            matrices[PREFERENCE], has[PREFERENCE] = matrix, matrix[:, -1] > 0
        return Features(matrices, has, n_rows)

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
        if self.preference is not None:
            json["preference"], own = self.preference.state()
            arrays |= {f"{PREFERENCE}/{name}": array for name, array in own.items()}
        return json, arrays

    @classmethod
    def from_state(
        cls, json: dict[str, Json], arrays: Mapping[str, np.ndarray], n_items: int
    ) -> FeatureEncoder:
        """Rebuild an encoder from what `state` returned.

        Parameters
        ----------
        json, arrays : dict
            What `state` returned.
        n_items : int
            The number of items of the model.

        Returns
        -------
        FeatureEncoder

        Raises
        ------
        ModelFileError
            If an array is missing, or does not fit the others or the number of items.
        """
        facts: dict[str, Any] = {**json}  # as `state` wrote them, or else an error follows
        columns: dict[str, dict[str, FittedColumn]] = {}
        for group, described in facts["columns"].items():
            columns[group] = {
                name: restore_column(settings, arrays, f"{group}/{name}/")
                for name, settings in described.items()
            }
        content = ContentEncoder(columns.pop(_CONTENT))
        groups = {name: GroupEncoder(own) for name, own in columns.items()}
        preference = None
        if facts["preference"] is not None:
            preference = PreferenceMap.from_state(facts["preference"], arrays)
            if len(preference.item_vectors) != n_items:
                raise ModelFileError(f"'preference' is of {len(preference.item_vectors)} items")
        return cls(groups, preference, content, facts["labels"])

    def example(self) -> dict[str, object]:
        """Return an example of a person with a value in every column.

        Returns
        -------
        dict of str to value
            One value for each user column, as `apply` takes it.
        """
        columns = chain.from_iterable(group.columns.items() for group in self.groups.values())
        return {name: column.example() for name, column in columns}
