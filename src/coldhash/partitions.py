"""Partitions: functions applied to blocks of users, wherever the blocks are kept.

A fit reaches its users only through `Partitions`. Everything it knows of single users (their
records, features, vectors, codes) is a `PerPartition`: one value for each partition, kept in
memory, in files or on the workers of a cluster. `map` and `update` apply a function to the values
of every partition. Where partitions begin is fixed by the data, and sums are formed in the order of
the partitions, so the place changes no bit of the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import iadd
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from coldhash.arrays.threads import run_pieces
from coldhash.data.dataset import UserRecords

T = TypeVar("T")
Allocate = Callable[[str, tuple[int, ...], type[np.generic]], np.ndarray]


@runtime_checkable
class Stored(Protocol):
    """A value that is read when it is needed."""

    def load(self) -> Any:
        """Read the value."""
        ...


@dataclass(frozen=True, eq=False)
class PerPartition(Generic[T]):
    """One value for each partition; only `Partitions` knows where they are."""

    parts: list[Any]


class Partitions(ABC):
    """Users in partitions; a place to keep them implements `run` and `scatter`."""

    records: PerPartition[UserRecords]
    folder: Path | None = None  # where a fit may keep its rounds

    def __len__(self) -> int:
        return len(self.records.parts)

    @abstractmethod
    def run(
        self, function: Callable[..., Any], *values: PerPartition[Any], keep: bool = True
    ) -> tuple[PerPartition[Any], Iterable[Any]]:
        """Apply a function to the values of every partition.

        Parameters
        ----------
        function
            Takes one value of each of `values`; returns one that stays in the partition and one
            that is returned, or only the latter unless `keep`.

        Returns
        -------
        kept
            The values that stay, complete once `results` is exhausted.
        results
            The other values, in the order of the partitions.
        """

    @abstractmethod
    def scatter(self, values: Sequence[T | Stored]) -> PerPartition[T]:
        """Send every partition one of some values, loaded or not."""

    def map(self, function: Callable[..., T], *values: PerPartition[Any]) -> Iterable[T]:
        """Apply a function to every partition and return the results in order."""
        return self.run(function, *values, keep=False)[1]

    def sum(self, function: Callable[..., T], *values: PerPartition[Any]) -> T:
        """Add up what a function returns for every partition."""
        return self.add_up(self.map(function, *values))

    def update(
        self, function: Callable[..., tuple[Any, T]], *values: PerPartition[Any]
    ) -> tuple[PerPartition[Any], T]:
        """Keep the first value that a function returns, and add up the second."""
        kept, results = self.run(function, *values)
        return kept, self.add_up(results)

    def add_up(self, results: Iterable[T]) -> T:
        """Add up what `run` or `map` returned, in order."""
        return add_up(results)

    def gather(self, rows: PerPartition[np.ndarray], n_rows: int, n_columns: int) -> np.ndarray:
        """Stack the rows of all partitions in one float32 array."""
        gathered = self.allocate("gathered", (n_rows, n_columns), np.float32)
        end = 0
        for part in self.map(np.asarray, rows):
            begin, end = end, end + len(part)
            gathered[begin:end] = part
        return gathered

    def allocate(self, name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
        """Return an uninitialised array for something about all users."""
        return np.empty(shape, dtype=dtype)

    def close(self) -> None:
        """Release the records; other values go with what refers to them."""
        self.records = PerPartition([])


class MemoryPartitions(Partitions):
    """Partitions in the memory of this process; each thread takes one after the other."""

    _apply: Callable[..., Iterator[Any]] = staticmethod(run_pieces)

    def __init__(self, records: Sequence[UserRecords | Stored]) -> None:
        self.records = self.scatter(records)

    def run(
        self, function: Callable[..., Any], *values: PerPartition[Any], keep: bool = True
    ) -> tuple[PerPartition[Any], Iterator[Any]]:
        """Apply a function to the values of every partition."""
        kept: PerPartition[Any] = PerPartition([])

        def load_and_run(parts: tuple[Any, ...]) -> Any:
            return function(*map(self._load, parts))

        def results() -> Iterator[Any]:
            parts = zip(*(value.parts for value in values), strict=True)
            for result in self._apply(load_and_run, parts):
                if keep:
                    value, result = result
                    kept.parts.append(self._store(value))
                yield result

        return kept, results()

    def scatter(self, values: Sequence[T | Stored]) -> PerPartition[T]:
        """Send every partition one of some values, loaded or not."""
        return PerPartition([self._store(value) for value in values])

    def _store(self, value: Any) -> Any:
        """Return what is kept of a value between functions."""
        return loaded(value)

    def _load(self, part: Any) -> Any:
        """Return the value of which a part was kept."""
        return part


def loaded(value: Any) -> Any:
    """Return a value itself, read if it is stored."""
    return value.load() if hasattr(value, "load") else value  # faster than asking for a protocol


def add_up(results: Iterable[T], typed: bool = True) -> T:
    """Add up results of one form (numbers, arrays, dicts and tuples of them) in order.

    Sums are formed in double precision and returned in the type of the results, or, unless `typed`,
    as they are, to go on with; None stays.
    """
    total: Any = None
    last: Any = None
    for last in results:  # in place, if they are arrays
        total = _map(_doubled, last) if total is None else _map(iadd, total, last)
    return _map(_typed, total, last) if typed else total  # type: ignore[no-any-return]


def _map(function: Callable[..., Any], one: Any, *others: Any) -> Any:
    """Apply a function to the leaves of results."""
    if isinstance(one, dict):
        return {
            key: _map(function, value, *(each[key] for each in others))
            for key, value in one.items()
        }
    if isinstance(one, tuple):
        found = (_map(function, *values) for values in zip(one, *others, strict=True))
        return type(one)(*found) if hasattr(one, "_fields") else tuple(found)
    return None if one is None else function(one, *others)


def _doubled(value: Any) -> Any:
    return value.astype(np.float64) if isinstance(value, np.ndarray) else value


def _typed(total: Any, one: Any) -> Any:
    return total.astype(one.dtype) if isinstance(total, np.ndarray) else total
