"""Results: what a journal holds, chosen by what was asked."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coldhash.errors import DataError
from coldhash.evaluate.compare import Comparison, Interval, UserHits, compare, interval
from coldhash.lab.results_log import Journal, flat

QUESTION = ("protocol", "shots", "oracle", "score")


@dataclass(frozen=True, eq=False)
class Results:
    """Rows of figures: a run and a question each.

    Examples
    --------
    >>> found = Results([{"label": "a", "mrr": 0.5}, {"label": "b", "mrr": 0.25}])
    >>> found.values("label"), found.where(label="b").mean("mrr")
    (['a', 'b'], 0.25)
    """

    rows: list[dict[str, Any]]

    @classmethod
    def of(cls, journal: Journal, keys: list[str]) -> Results:
        """Take the runs of a plan out of a journal."""
        rows = []
        for key in keys:
            line = journal.lines[key]
            for row in flat(line):
                settings = json.loads(row.pop("settings"))
                extra = {name: line[name] for name in ("objective", "fit_parts", "stamp")}
                rows.append(row | extra | settings | {"users_file": journal.users_file(key)})
        return cls(rows)

    def where(self, **wanted: Any) -> Results:
        """Keep the rows that have these values."""
        return Results(
            [row for row in self.rows if all(row.get(n) == value for n, value in wanted.items())]
        )

    def values(self, name: str) -> list[Any]:
        """List the values of a column, each once, in order of appearance."""
        return list(dict.fromkeys(row.get(name) for row in self.rows))

    def by(self, name: str) -> Iterator[tuple[Any, Results]]:
        """Go through the values of a column."""
        for value in self.values(name):
            yield value, self.where(**{name: value})

    def mean(self, metric: str) -> float:
        """Average a figure over the splits."""
        if not self.rows:
            raise DataError(f"no run has {metric}")
        return float(np.mean([row[metric] for row in self.rows]))

    def hits(self, k: int, ties: Literal["expected", "optimistic"] = "expected") -> list[UserHits]:
        """Give the hits of each user, split by split."""
        column = f"{'hits' if ties == 'expected' else ties}@{k}"
        return [
            _user_hits(row["users_file"], column, tuple(row[name] for name in QUESTION))
            for row in sorted(self.rows, key=lambda row: row["split"])
        ]

    def interval(self, k: int) -> Interval:
        """Give the mean over splits with its interval over users."""
        return interval(self.hits(k))

    def against(
        self, other: Results, k: int, ties: Literal["expected", "optimistic"] = "expected"
    ) -> Comparison:
        """Compare with another method on the splits that both have."""
        both = set(self.values("split")) & set(other.values("split"))
        ours, theirs = (
            Results([row for row in side.rows if row["split"] in both]).hits(k, ties)
            for side in (self, other)
        )
        return compare(ours, theirs)


@functools.lru_cache(maxsize=4096)
def _user_hits(path: Path, column: str, question: tuple[Any, ...]) -> UserHits:
    table = pq.read_table(path)
    for name, value in zip(QUESTION, question, strict=True):
        table = table.filter(pc.equal(table.column(name), value))
    return UserHits(
        np.array(table.column("user_id").to_pylist(), dtype=object),
        table.column(column).to_numpy().astype(np.float64),
        table.column("pairs").to_numpy(),
    )
