"""Recommendations: the answer, a small table that turns into any other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, eq=False)
class Recommendations:
    """Ranked items of some users; row by row by iteration, or as a table of any kind.

    The columns are `user_id, item_id, score, rank`, and `distance` for Hamming. A higher score is
    better.

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
    ['user_id', 'item_id', 'score', 'rank']
    """

    user_ids: list[str]
    item_ids: list[list[str]]  # best first, one list a user
    scores: np.ndarray  # users x k, -inf where there are fewer
    distances: np.ndarray | None
    fallback: np.ndarray  # who got the popular items, for want of anything known
    short: list[str]  # users with fewer than k items, because no more are allowed
    ignored: list[tuple[int, str]] = field(default_factory=list)  # rated items nobody knows

    def __len__(self) -> int:
        return sum(map(len, self.item_ids))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for user, (user_id, items) in enumerate(zip(self.user_ids, self.item_ids, strict=True)):
            for place, item_id in enumerate(items):
                row = {
                    "user_id": user_id,
                    "item_id": item_id,
                    "score": float(self.scores[user, place]),
                    "rank": place + 1,
                }
                if self.distances is not None and not self.fallback[user]:
                    row["distance"] = int(self.distances[user, place])
                yield row

    def to_arrow(self) -> pa.Table:
        """Give an Arrow table."""
        counts = [len(items) for items in self.item_ids]
        here = np.arange(self.scores.shape[1]) < np.array(counts)[:, None]
        users = pa.array(self.user_ids, pa.string()).take(
            pa.array(np.repeat(np.arange(len(counts)), counts))
        )
        columns = {
            "user_id": users,
            "item_id": pa.array([item for items in self.item_ids for item in items], pa.string()),
            "score": self.scores[here],
            "rank": np.concatenate([np.arange(1, n + 1) for n in counts] or [np.zeros(0, int)]),
        }
        if self.distances is not None:
            unknown = np.repeat(self.fallback, counts)
            columns["distance"] = pa.array(self.distances[here], pa.int32(), mask=unknown)
        return pa.table(columns)

    def to_pandas(self) -> Any:
        """Give a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Give a polars frame."""
        import polars

        return polars.from_arrow(self.to_arrow())

    def __repr__(self) -> str:
        shown = [
            f"  {row['user_id']}  {row['rank']:>3}  {row['item_id']}  {row['score']:.4g}"
            for row, _ in zip(self, range(10), strict=False)
        ]
        more = f"\n  ... {len(self) - 10:,} more" if len(self) > 10 else ""
        return "user  rank  item  score\n" + "\n".join(shown) + more
