"""Answers: ranked items of some people, and items or users most like others."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from html import escape
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import pyarrow as pa

from coldhash.arrays.products import SparseRows
from coldhash.data import TITLE
from coldhash.data.ids import Ids
from coldhash.files import Json
from coldhash.recommender.items import CodeItems, Items
from coldhash.render import html_table
from coldhash.search import Search, Subset

if TYPE_CHECKING:
    import pandas
    import polars

# what a column of titles may be called, in lower case and with underscores
TITLES = (
    *("title", "name", "product_name", "item_name", "product_title", "item_title"),
    *("movie_title", "book_title", "track_name", "track_title", "song_title", "display_name"),
)
MAX_NAMED = 5  # ids in a note
MAX_SHOWN = 10  # rows of an answer
MAX_DESCRIBED = 1 << 14  # items whose ids and titles are kept as Python strings
Row = dict[str, Any]  # one line of an answer: ids, names, numbers


def find_titles(table: pa.Table, chosen: str | None) -> pa.Array | None:
    """Return what items are called; None if no column of the item table is a title."""
    names = table.column_names
    simple = {re.sub(r"\W", "_", name).lower(): name for name in names}
    name = chosen or next((simple[name] for name in TITLES if name in simple), None)
    if name not in names:
        return None
    column = table.column(name).combine_chunks()  # one chunk: quick to look up
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        return None  # nothing to show
    return column.cast(pa.string())


class ShownItems:
    """What answers show of items.

    Parameters
    ----------
    ids
        The ids of all items.
    titles
        What items are called, if that is known.
    columns
        Chosen columns of the item table, by name.
    """

    def __init__(
        self, ids: Ids, titles: pa.Array | None, columns: Mapping[str, pa.ChunkedArray]
    ) -> None:
        self.ids = ids
        named = {} if titles is None else {TITLE: titles}
        every = {"item_id": ids.values, **named, **columns}
        self.table = pa.table(every)

        @lru_cache(MAX_DESCRIBED)
        def describe(row: int) -> Row:
            return {name: column[row].as_py() for name, column in every.items()}

        self.describe = describe


class Explanation(TypedDict):
    """What carried an item for a person."""

    item_id: str
    title: str | None
    score: float
    contributions: dict[str, float]
    group_weights: dict[str, float]
    nearest_users: list[str]
    fallback: bool
    ignored: list[str]


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
    items
        What to show of the items of the catalogue.
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
    items: ShownItems
    rows: np.ndarray
    scores: np.ndarray
    distances: np.ndarray | None
    fallback: np.ndarray
    ignored: list[tuple[int, str]] = field(default_factory=list)

    @cached_property
    def item_ids(self) -> list[list[str]]:
        """The ids of the items, best first, one list a person."""
        return self.items.ids.texts(self.rows)

    def __len__(self) -> int:
        return int(np.count_nonzero(self.rows >= 0))

    def __iter__(self) -> Iterator[dict[str, Json]]:
        near = None if self.distances is None else self.distances.tolist()
        fallback, scores = self.fallback.tolist(), self.scores.tolist()
        for person, rows in enumerate(self.rows.tolist()):
            user_id, popular, own = self.user_ids[person], fallback[person], scores[person]
            for place, row in enumerate(rows):
                if row < 0:
                    break
                item = {"user_id": user_id, "item_id": None, "score": own[place], "rank": place + 1}
                if near is not None:
                    item["distance"] = None if popular else near[person][place]
                item["fallback"] = popular
                item.update(self.items.describe(row))
                yield item

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table.

        Returns
        -------
        pyarrow.Table
            The columns of the class.
        """
        here = self.rows >= 0
        people, places = np.nonzero(here)
        columns = {
            "user_id": pa.array(self.user_ids, pa.string()).take(pa.array(people)),
            "item_id": None,
            "score": self.scores[here],
            "rank": places + 1,
        }
        if self.distances is not None:
            unknown = self.fallback[people]
            columns["distance"] = pa.array(self.distances[here], pa.int32(), mask=unknown)
        columns["fallback"] = self.fallback[people]
        return join_columns(columns, self.items.table.take(pa.array(self.rows[here])))

    @property
    def notes(self) -> list[str]:
        """Sentences about who got the popular items, and about rated items that are not known."""
        popular = [self.user_ids[row] for row in np.flatnonzero(self.fallback)]
        items = list(dict.fromkeys(item for _, item in self.ignored))
        about = {
            "the popular items, as nothing usable is known: user": popular,
            "not known to the model, so ignored: item": items,
        }
        return [f"{text} {_name_some(names)}" for text, names in about.items() if names]

    def _repr_html_(self) -> str:
        table = self.to_arrow().slice(0, MAX_SHOWN)
        rows = [table.column_names, *(row.values() for row in table.to_pylist())]
        return html_table(rows) + escape("; ".join(self._remarks()))

    def _remarks(self) -> list[str]:
        more = len(self) - MAX_SHOWN
        return [f"  ... {more:,} more", *self.notes] if more > 0 else self.notes

    def __repr__(self) -> str:
        shown = [
            f"  {row['user_id']}  {row['rank']:>3}  {row['item_id']}  {row['score']:.4g}"
            f"  {row.get('title') or ''}".rstrip()
            for row in self.to_arrow().slice(0, MAX_SHOWN).to_pylist()
        ]
        return "\n".join(["user  rank  item  score", *shown, *self._remarks()])


def join_columns(columns: dict[str, pa.Array | np.ndarray | None], shown: pa.Table) -> pa.Table:
    """Return columns and then those of a table, of which the id has a place among the former."""
    return pa.table(columns | dict(zip(shown.column_names, shown.columns, strict=True)))


def _name_some(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


@dataclass(frozen=True, eq=False)
class Similar(Answer):
    """Items or users most like another one, the nearest first.

    Parameters
    ----------
    table
        Columns item_id or user_id, score (higher is nearer), rank, distance for a model with codes,
        and what to show of items.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> [list(row) for row in model.similar_users({"age": 30}, k=1)]
    [['user_id', 'score', 'rank', 'distance']]
    """

    table: pa.Table

    @property
    def ids(self) -> list[str]:
        """Their ids, the nearest first."""
        ids: list[str] = self.table.column(0).to_pylist()
        return ids

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table.

        Returns
        -------
        pyarrow.Table
            The parameter of the class.
        """
        return self.table


def find_similar(
    table: pa.Table, items: Items, query: np.ndarray, k: int, own: np.ndarray, within: Subset | None
) -> Similar:
    """Find the nearest of some items (or users), the row `own` left out."""
    itself = SparseRows.of_lists([own], len(items))
    rows, scores = items.nearest(query, k, Search(itself, within=within))
    rows = rows[:, rows[0] >= 0]
    n_found = rows.shape[1]
    columns = {
        table.column_names[0]: None,
        "score": scores[0, :n_found].astype(np.float64),
        "rank": np.arange(1, n_found + 1),
    }
    if isinstance(items, CodeItems):
        columns["distance"] = items.distances(query, rows)[0].astype(np.int64)
    return Similar(join_columns(columns, table.take(pa.array(rows[0]))))
