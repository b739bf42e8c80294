"""The files of finished runs, and the results that are read from them.

OUT/NAME/runs/KEY.parquet     a finished run: the hits of each user; in the metadata, as JSON,
                              settings, seed, versions, machine, times and metrics
OUT/NAME/results.parquet      all metrics in one table, in the order of the plan; also .csv
OUT/NAME/results.md           means over splits of a few metrics
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coldhash.errors import DataError
from coldhash.evaluate import Comparison, Interval, UserHits, compare, interval
from coldhash.files import replace_file
from coldhash.render import write_rows

Row = dict[str, Any]  # JSON
LoggedTies = Literal["expected", "optimistic"]

_FACTS = b"coldhash"  # the key of the metadata
_QUESTION = ("protocol", "shots", "oracle", "score", "popularity")
_MODEL = ("dataset", "label", "settings", "train_share", "user_ratings", *_QUESTION)
_SHOWN = ("accuracy@10", "ndcg@10", "mrr", "coverage@10")  # in Markdown
_NESTED = ("metrics", "objective", "fit_parts", "stamp", "users_file")  # not in a table


def write_run(path: Path, facts: Row, judgements: list[Row], users: pa.Table) -> None:
    """Write the file of a finished run, in one step."""
    metadata = {_FACTS: json.dumps(facts | {"judgements": judgements}, ensure_ascii=False)}
    with replace_file(path) as file:
        pq.write_table(users.replace_schema_metadata(metadata), file)


def read_runs(paths: Iterable[Path]) -> Iterator[Row]:
    """Read one row for each run and question that it answered."""
    for path in paths:
        facts = json.loads(pq.read_schema(path).metadata[_FACTS])
        for judged in facts.pop("judgements"):
            yield facts | judged | judged["metrics"] | {"users_file": path}


def write_tables(rows: list[Row], folder: Path) -> None:
    """Write the table of all metrics; in Markdown, of the means over splits of a few."""
    plain = [{n: value for n, value in row.items() if n not in _NESTED} for row in rows]
    with replace_file(folder / "results.parquet") as file:
        pq.write_table(pa.Table.from_pylist(plain), file)
    write_rows(plain, folder / "results.csv")
    means = [
        dict(zip(_MODEL, model, strict=True))
        | {"splits": len(part.rows)}
        | {name: part.mean(name) for name in _SHOWN}
        for model, part in Results(rows).groups(*_MODEL)
    ]
    write_rows(means, folder / "results.md")


@dataclass(frozen=True, eq=False)
class Results:
    """Rows of metrics, one for each run and question.

    Parameters
    ----------
    rows
        Metrics, settings and the description of the run, by name.

    Examples
    --------
    >>> found = Results([{"label": "a", "mrr": 0.5}, {"label": "b", "mrr": 0.25}])
    >>> found.values("label"), found.where(label="b").mean("mrr")
    (['a', 'b'], 0.25)
    """

    rows: list[Row]

    def where(self, **wanted: object) -> Results:
        """Select the rows that have these values.

        Parameters
        ----------
        **wanted
            Values by column; None also matches rows without the column.

        Returns
        -------
        Results
            The rows that match all of them; there may be none.
        """
        return Results(
            [row for row in self.rows if all(row.get(n) == value for n, value in wanted.items())]
        )

    def values(self, name: str) -> list[object]:
        """List the distinct values of a column in order of appearance.

        Parameters
        ----------
        name
            The column.

        Returns
        -------
        list of object
            The values; None for rows without the column.
        """
        return list(dict.fromkeys(row.get(name) for row in self.rows))

    def by(self, name: str) -> Iterator[tuple[object, Results]]:
        """Iterate over the values of a column and the rows that have them.

        Parameters
        ----------
        name
            The column.

        Yields
        ------
        value : object
            A distinct value, in order of appearance.
        rows : Results
            The rows that have it.
        """
        for (value,), part in self.groups(name):
            yield value, part

    def groups(self, *names: str) -> Iterator[tuple[tuple[object, ...], Results]]:
        """Iterate over the values of several columns and the rows that have them.

        Parameters
        ----------
        *names
            The columns.

        Yields
        ------
        values : tuple of object
            Distinct values of the columns, in order of appearance.
        rows : Results
            The rows that have them.
        """
        found: dict[tuple[object, ...], list[Row]] = {}
        for row in self.rows:
            found.setdefault(tuple(row.get(name) for name in names), []).append(row)
        for values, rows in found.items():
            yield values, Results(rows)

    def mean(self, metric: str) -> float:
        """Compute the mean of a metric over the rows.

        Parameters
        ----------
        metric
            The column, such as "accuracy@10".

        Returns
        -------
        float

        Raises
        ------
        DataError
            There are no rows.
        KeyError
            A row does not have the metric.
        """
        if not self.rows:
            raise DataError(f"no run has {metric}")
        return float(np.mean([row[metric] for row in self.rows]))

    def hits(self, k: int, ties: LoggedTies = "expected") -> list[UserHits]:
        """Read the hits of each user, split by split.

        Parameters
        ----------
        k
            Length of the lists, one that the log has hits for.
        ties
            "expected", or "optimistic" to count ties as hits.

        Returns
        -------
        list of UserHits
            One for each row, in the order of splits.

        Raises
        ------
        KeyError
            The log has no hits for k.
        """
        column = f"{'hits' if ties == 'expected' else ties}@{k}"
        return [
            _read_hits(row["users_file"], column, tuple(row[name] for name in _QUESTION))
            for row in sorted(self.rows, key=lambda row: row["split"])
        ]

    def interval(self, k: int) -> Interval:
        """Compute the mean Accuracy@k with its interval over users.

        Parameters
        ----------
        k
            Length of the lists, one that the log has hits for.

        Returns
        -------
        Interval

        Raises
        ------
        DataError
            There are no rows, or too few users.
        """
        return interval(self.hits(k))

    def compare(self, other: Results, k: int, ties: LoggedTies = "expected") -> Comparison:
        """Compare with another method on the splits that both have.

        Parameters
        ----------
        other
            The rows of the other method.
        k
            Length of the lists, one that the log has hits for.
        ties
            "expected", or "optimistic" to count ties as hits.

        Returns
        -------
        Comparison
            This method minus the other one.

        Raises
        ------
        DataError
            No split is in both, there are too few users, or the users or pairs differ.
        """
        both = set(self.values("split")) & set(other.values("split"))
        first, second = (
            Results([row for row in side.rows if row["split"] in both]).hits(k, ties)
            for side in (self, other)
        )
        return compare(first, second)


@functools.lru_cache(maxsize=4096)
def _read_hits(path: Path, column: str, question: tuple[object, ...]) -> UserHits:
    table = pq.read_table(path)
    for name, value in zip(_QUESTION, question, strict=True):
        table = table.filter(pc.equal(table.column(name), value))
    return UserHits(
        np.array(table.column("user_id").to_pylist(), dtype=object),
        table.column(column).to_numpy().astype(np.float64),
        table.column("pairs").to_numpy(),
    )
