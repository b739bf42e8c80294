"""Users in partitions: one function applied to each, with results in order.

A fit knows its users only through `Partitions`. What one partition holds are named values: its
ratings, its features, its vectors. A `Step` says which it reads and which it writes, and returns
what the fit adds up over all partitions. Partitions and the order of the sums are fixed by the
data, so where they are (memory, files, a cluster) changes no bit of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from coldhash.data.dataset import Dataset

PART_USERS = 65_536  # users of one partition: where one ends changes how sums are rounded

Part = Mapping[str, Any]  # values: arrays, CSR matrices, dicts of these, None
Changes = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """A function of one partition: `work(part, *shared)` gives what it writes, and a result."""

    work: Callable[..., tuple[Changes, Any]]
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()


class Partitions(Protocol):
    """Where the partitions are, and how a step reaches them.

    Raw values that are there from the start: `first` (the row of the first user), `ratings` and
    `columns` (the user table).
    """

    def __len__(self) -> int: ...

    def each(self, step: Step, *shared: Any) -> Iterator[Any]:
        """Apply a step to every partition; the results come in order."""
        ...

    def put(self, name: str, values: Sequence[Any]) -> None:
        """Give every partition a value."""
        ...

    def drop(self, *names: str) -> None:
        """Forget values."""
        ...

    def room(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Make an array for something about all users."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class Listed:
    """A list of partitions: values, or what stands for them."""

    _parts: list[dict[str, Any]]

    def __len__(self) -> int:
        return len(self._parts)

    def drop(self, *names: str) -> None:
        """Forget values."""
        for part in self._parts:
            for name in names:
                part.pop(name, None)

    def room(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Make an array for something about all users."""
        del name
        return np.empty(shape, dtype=dtype)

    def close(self) -> None:
        """Forget everything."""
        self._parts = []


class InMemory(Listed):
    """Partitions in the memory of this process."""

    def __init__(self, parts: list[dict[str, Any]]) -> None:
        self._parts = parts

    def each(self, step: Step, *shared: Any) -> Iterator[Any]:
        """Apply a step to every partition; the results come in order."""
        for part in self._parts:
            changes, result = step.work(part, *shared)
            part.update(changes)
            yield result

    def put(self, name: str, values: Sequence[Any]) -> None:
        """Give every partition a value."""
        for part, value in zip(self._parts, values, strict=True):
            part[name] = value


def cuts(n_users: int, part_users: int = PART_USERS) -> list[int]:
    """Say where partitions begin, and where the last one ends."""
    return [*range(0, max(n_users, 1), part_users), n_users]


def raw_parts(data: Dataset, part_users: int = PART_USERS) -> list[dict[str, Any]]:
    """Cut a data set into the raw values of its partitions."""
    matrix, ends = data.ratings.matrix, cuts(len(data.ratings.users), part_users)
    return [
        {
            "first": first,
            "ratings": matrix if len(ends) == 2 else _rows(matrix, first, last),
            "columns": data.users.slice(first, last - first) if data.users.num_columns else None,
        }
        for first, last in pairwise(ends)
    ]


def columns_of(part: Part) -> pa.Table:
    """Give the user table of a partition; without columns where there is none."""
    return pa.table({}) if part["columns"] is None else part["columns"]


def added(results: Iterable[Any]) -> Any:
    """Add up results of one shape (numbers, arrays, dicts of them) in order.

    The sum is formed in double precision and given in the type of the first.
    """
    total: Any = None
    first: Any = None
    for result in results:
        if total is None:
            first, total = result, _doubled(result)
        else:
            total = _plus(total, result)
    return _typed(total, first)


def _doubled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _doubled(one) for key, one in value.items()}
    return value.astype(np.float64) if isinstance(value, np.ndarray) else value


def _plus(total: Any, value: Any) -> Any:
    if isinstance(total, dict):
        return {key: _plus(one, value[key]) for key, one in total.items()}
    if isinstance(total, np.ndarray):
        total += value
        return total
    return total + value


def _typed(total: Any, first: Any) -> Any:
    if isinstance(total, dict):
        return {key: _typed(one, first[key]) for key, one in total.items()}
    return total.astype(first.dtype) if isinstance(total, np.ndarray) else total


def _rows(matrix: csr_array, first: int, last: int) -> csr_array:
    begin, end = matrix.indptr[first], matrix.indptr[last]
    entries = (
        matrix.data[begin:end],
        matrix.indices[begin:end],
        matrix.indptr[first : last + 1] - begin,
    )
    return csr_array(entries, shape=(last - first, matrix.shape[1]))
