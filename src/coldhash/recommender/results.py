"""Answers: ranked items of some people, and items or users most like others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from coldhash.data.ids import Ids
from coldhash.files import Json
from coldhash.render import html_table

if TYPE_CHECKING:
    import pandas
    import polars

MAX_NAMED = 5  # ids in a note
MAX_SHOWN = 10  # rows of an answer
Row = dict[str, Any]  # one line of an answer: ids, names, numbers


class Answer(ABC):
    """An answer: rows by iteration, or a table of any kind."""

    def __len__(self) -> int:
        return int(self.to_arrow().num_rows)

    def __iter__(self) -> Iterator[dict[str, Json]]:
        return iter(self.to_arrow().to_pylist())

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return an Arrow table.

        Returns
        -------
        pyarrow.Table
            A row for each row of the answer.
        """

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas frame.

        Returns
        -------
        pandas.DataFrame
            The columns of `to_arrow`.

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame | polars.Series:
        """Return a polars frame.

        Returns
        -------
        polars.DataFrame
            The columns of `to_arrow`.

        Raises
        ------
        ImportError
            polars is not installed.
        """
        import polars

        return polars.from_arrow(self.to_arrow())


@dataclass(frozen=True, eq=False)
class Recommendations(Answer):
    """Ranked items of some people; row by row by iteration, or as a table of any kind.

    The columns are `user_id, item_id, score, rank, fallback`, `distance` for Hamming, `title` where
    items have one, and the fields that were asked for. A higher score is better.

    Parameters
    ----------
    user_ids
        What people are called: their `user_id`, or their place in the call.
    catalogue
        The ids of all items.
    describe
        Returns the id and the details of an item by its place in the catalogue.
    rows
        People x k: the place of each item in the catalogue, best first; -1 where there are fewer.
    scores
        People x k; -inf where there are fewer.
    distances
        Hamming distances, for `score="hamming"`.
    fallback
        Who got the popular items, because nothing usable was known.
    ignored
        Rated items that the model does not know: the person's place, and the item id.
    details
        What to show of all items of the catalogue: titles, and the fields that were asked for.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> answer = model.recommend([{"user_id": "ann", "age": 30}, {"user_id": "bob"}], k=2)
    >>> answer.user_ids, answer.fallback.tolist()
    (['ann', 'bob'], [False, True])
    >>> [(row["user_id"], row["rank"]) for row in answer]
    [('ann', 1), ('ann', 2), ('bob', 1), ('bob', 2)]
    >>> answer.to_arrow().column_names
    ['user_id', 'item_id', 'score', 'rank', 'fallback', 'title']
    """

    user_ids: list[str]
    catalogue: Ids
    describe: Callable[[int], dict[str, Json]]
    rows: np.ndarray
    scores: np.ndarray
    distances: np.ndarray | None
    fallback: np.ndarray
    ignored: list[tuple[int, str]] = field(default_factory=list)
    details: pa.Table | None = None

    @cached_property
    def item_ids(self) -> list[list[str]]:
        """The ids of the items, best first, one list a person."""
        return self.catalogue.texts(self.rows)

    def __len__(self) -> int:
        return int(np.count_nonzero(self.rows >= 0))

    def __iter__(self) -> Iterator[dict[str, Json]]:
        near = None if self.distances is None else self.distances.tolist()
        lists = zip(self.rows.tolist(), self.scores.tolist(), strict=True)
        people = zip(self.user_ids, self.fallback.tolist(), lists, strict=True)
        for person, (user_id, popular, (rows, scores)) in enumerate(people):
            for place, row in enumerate(rows):
                if row < 0:
                    break
                shown = self.describe(row)
                item: dict[str, Json] = {"user_id": user_id, "item_id": shown["item_id"]}
                item["score"], item["rank"] = scores[place], place + 1
                if near is not None:
                    item["distance"] = None if popular else near[person][place]
                yield item | {"fallback": popular} | shown

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table.

        Returns
        -------
        pyarrow.Table
            The columns of the class.
        """
        here = self.rows >= 0
        counts = here.sum(axis=1)
        people = pa.array(np.repeat(np.arange(len(counts)), counts))
        columns = {
            "user_id": pa.array(self.user_ids, pa.string()).take(people),
            "item_id": self.catalogue.values.take(pa.array(self.rows[here])),
            "score": self.scores[here],
            "rank": np.broadcast_to(np.arange(1, here.shape[1] + 1), here.shape)[here],
        }
        if self.distances is not None:
            unknown = np.repeat(self.fallback, counts)
            columns["distance"] = pa.array(self.distances[here], pa.int32(), mask=unknown)
        columns["fallback"] = np.repeat(self.fallback, counts)
        details = self.details and self.details.take(pa.array(self.rows[here]))
        return pa.table({**columns, **_columns_of(details)})

    @property
    def notes(self) -> list[str]:
        """Sentences about who got the popular items, and about rated items that are not known."""
        popular = [self.user_ids[row] for row in np.flatnonzero(self.fallback)]
        items = list(dict.fromkeys(item for _, item in self.ignored))
        about = {
            "the popular items, as nothing usable is known: user": popular,
            "not known to the model, so ignored in histories: item": items,
        }
        return [f"{text} {_name_some(names)}" for text, names in about.items() if names]

    def _repr_html_(self) -> str:
        table = self.to_arrow().slice(0, MAX_SHOWN)
        rows = [table.column_names, *(row.values() for row in table.to_pylist())]
        return html_table(rows) + escape("; ".join([*self._rest(), *self.notes]))

    def _rest(self) -> list[str]:
        return [f"  ... {len(self) - MAX_SHOWN:,} more"] if len(self) > MAX_SHOWN else []

    def __repr__(self) -> str:
        shown = [
            f"  {row['user_id']}  {row['rank']:>3}  {row['item_id']}  {row['score']:.4g}"
            f"  {row.get('title') or ''}".rstrip()
            for row in self.to_arrow().slice(0, MAX_SHOWN).to_pylist()
        ]
        return "\n".join(["user  rank  item  score", *shown, *self._rest(), *self.notes])


def _columns_of(table: pa.Table | None) -> dict[str, pa.ChunkedArray]:
    return {} if table is None else dict(zip(table.column_names, table, strict=True))


def describer(ids: Ids, details: pa.Table | None) -> Callable[[int], dict[str, Json]]:
    """Return what describes an item by its row: its id, and its details."""
    columns = {"item_id": ids.values, **_columns_of(details)}
    return lambda row: {name: column[row].as_py() for name, column in columns.items()}


def _name_some(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


@dataclass(frozen=True, eq=False)
class Similar(Answer):
    """Items or users most like another one, the nearest first.

    Parameters
    ----------
    kind
        "item" or "user".
    ids
        Their ids.
    scores
        Their scores; higher is nearer.
    distances
        Hamming distances, for a model with codes.
    details
        What to show of items: titles, and the fields that were asked for.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> [list(row) for row in model.similar_users({"age": 30}, k=1)]
    [['user_id', 'score', 'rank', 'distance']]
    """

    kind: str
    ids: list[str]
    scores: np.ndarray
    distances: np.ndarray | None
    details: pa.Table | None = None

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table.

        Returns
        -------
        pyarrow.Table
            Columns item_id or user_id, score and rank, distance for codes, and details of items.
        """
        columns = {
            f"{self.kind}_id": pa.array(self.ids, pa.string()),
            "score": self.scores.astype(np.float64),
            "rank": np.arange(1, len(self.ids) + 1),
        }
        if self.distances is not None:
            columns["distance"] = self.distances.astype(np.int64)
        return pa.table({**columns, **_columns_of(self.details)})
