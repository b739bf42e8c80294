"""What to do with a user who rated an item more than once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from coldhash.data.ids import Ids
from coldhash.errors import DataError

Duplicates = Literal["error", "last", "mean", "max"]


def _pairs(user_rows: np.ndarray, item_rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort entries by pair, in order of appearance within one; and where each pair starts."""
    order = np.lexsort((item_rows, user_rows))
    user_rows, item_rows = user_rows[order], item_rows[order]
    new = (np.diff(user_rows, prepend=-1) != 0) | (np.diff(item_rows, prepend=-1) != 0)
    return order, np.flatnonzero(new)


def merged(
    user_rows: np.ndarray, item_rows: np.ndarray, values: np.ndarray, rule: Duplicates
) -> tuple[np.ndarray, np.ndarray]:
    """Apply the rule to repeated pairs; gives the entry to keep for each pair, and its value."""
    order, starts = _pairs(user_rows, item_rows)
    ends = np.append(starts[1:], len(order))
    last = order[ends - 1]
    if rule == "last":
        return last, values[last]
    if rule == "max":
        return last, np.maximum.reduceat(values[order], starts)
    sums = np.add.reduceat(values[order].astype(np.float64), starts)
    return last, (sums / (ends - starts)).astype(np.float32)


def rated_twice(
    user_rows: np.ndarray,
    item_rows: np.ndarray,
    users: Ids,
    items: Ids,
    where: Callable[[int], str],
) -> DataError:
    """Make the error that names the first repetition."""
    order, starts = _pairs(user_rows, item_rows)
    repeats = np.delete(order, starts)
    again = int(repeats.min())
    user, item = user_rows[again], item_rows[again]
    first = int(np.argmax((user_rows == user) & (item_rows == item)))
    return DataError(
        f"{where(again)}: user {users[user]!r} rated item {items[item]!r} already, in "
        f"{where(first)}; repetitions in all: {len(repeats):,}",
        hint="choose a rule: duplicates='last', 'mean' or 'max'",
    )
