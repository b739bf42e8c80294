"""The log of an experiment on disk, and the results that are read from it.

    OUT/NAME/runs.jsonl           a line for each finished run
    OUT/NAME/users/KEY.parquet    the hits of each user
    OUT/NAME/results.parquet      all metrics in one table, in the order of the plan; also .csv
    OUT/NAME/results.md           means over splits of a few metrics

The table of users is written before the line, so every line is of a complete run. A line that
was cut off is dropped when the log is opened again.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coldhash.errors import DataError
from coldhash.evaluate import Comparison, Interval, UserHits, compare, interval
from coldhash.files import lock_file, replace_file, writing
from coldhash.render import write_rows

Row = dict[str, Any]  # JSON
LoggedTies = Literal["expected", "optimistic"]

_QUESTION = ("protocol", "shots", "oracle", "score", "popularity")
_MODEL = ("dataset", "label", "settings", "train_share", "user_ratings", *_QUESTION)
_SHOWN = ("accuracy@10", "ndcg@10", "mrr", "coverage@10")  # in Markdown
_NESTED = ("judgements", "metrics", "seconds", "objective", "fit_parts", "stamp")  # not in a table


class ResultsLog:
    """The finished runs of one experiment, by key."""

    def __init__(self, out: Path, name: str) -> None:
        """Open or create the log; only one process at a time may have it open."""
        self.folder = out / name
        with writing(self.folder):
            (self.folder / "users").mkdir(parents=True, exist_ok=True)
        busy = f"{self.folder}: another process is running this experiment"
        self._file = lock_file(self.folder / "runs.jsonl", busy)
        self.lines = dict(_read_lines(self._file))

    def __enter__(self) -> ResultsLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, key: str, line: Row, users: pa.Table) -> None:
        """Add a finished run; once this returns, it is on disk."""
        entry = {"key": key, **line}
        with replace_file(self.users_file(key)) as file:
            pq.write_table(users, file)
        with writing(self.folder / "runs.jsonl"):
            left = json.dumps(entry, ensure_ascii=False).encode() + b"\n"
            while left:  # a disk that fills up takes a part first
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        self.lines[key] = entry

    def results(self, keys: Iterable[str]) -> Results:
        """Return the results of finished runs, in the order of their keys."""
        return Results(
            [
                row | row["settings"] | {"users_file": self.users_file(key)}
                for key in keys
                for row in _flatten(self.lines[key])
            ]
        )

    def write_table(self, keys: Iterable[str]) -> None:
        """Write the table of all metrics, in the order of the plan; in Markdown, of a few means."""
        rows = [
            {name: value for name, value in row.items() if name not in _NESTED}
            | {"settings": json.dumps(row["settings"], sort_keys=True)}
            for key in keys
            for row in _flatten(self.lines[key])
        ]
        if rows:
            with replace_file(self.folder / "results.parquet") as file:
                pq.write_table(pa.Table.from_pylist(rows), file)
            write_rows(rows, self.folder / "results.csv")
            write_rows(_average(rows), self.folder / "results.md")

    def users_file(self, key: str) -> Path:
        """Return the path of the table of users of a run."""
        return self.folder / "users" / f"{key}.parquet"


def _average(rows: list[Row]) -> list[Row]:
    """Average over splits the metrics that a reader asks for first."""
    by_model: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        by_model.setdefault(tuple(row[name] for name in _MODEL), []).append(row)
    return [
        dict(zip(_MODEL, key, strict=True))
        | {"splits": len(same)}
        | {name: float(np.mean([row[name] for row in same])) for name in _SHOWN}
        for key, same in by_model.items()
    ]


def _flatten(line: Row) -> Iterator[Row]:
    """Make one row for each question that the run answered."""
    for judged in line["judgements"]:
        yield line | judged | judged["metrics"] | {"judge_seconds": judged["seconds"]}


def _read_lines(file: IO[bytes]) -> Iterator[tuple[str, Row]]:
    """Read the lines, and cut off an incomplete last one."""
    file.seek(0)
    *whole, cut = file.read().split(b"\n")
    for raw in whole:
        line = json.loads(raw)
        yield line["key"], line
    if cut:
        file.truncate(file.tell() - len(cut))


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
        for value in self.values(name):
            yield value, self.where(**{name: value})

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
