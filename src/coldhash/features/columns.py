"""Fitted columns: values of a table -> the few numbers of each that are not zero.

Every kind of column has the same parts: `width`, how many numbers a value becomes; `mean`, which
replaces a missing value (the average of the training part); `encode`, which encodes values, and
`cells`, which encodes one. A column defines one of the two, or both where one is faster by itself.
A value without cells is missing: None, NaN, the empty text and a value never seen in training all
are; only a value of the wrong type is an error.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from coldhash.arrays.checks import Forms, check_places, take
from coldhash.data import EPOCH, as_days
from coldhash.errors import DataError, ModelFileError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from coldhash.data import plan  # not needed to serve a model

Value: TypeAlias = Any  # of a column: whatever Arrow or JSON can hold
Cells = list[tuple[int, float]]  # (column, number) of one value
# the cells of many values: how many each has, then the columns and numbers of all
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]
Counts = Mapping[Value, int]  # the distinct values of a column, and how often each occurs
State = tuple[dict[str, Any], dict[str, np.ndarray]]  # JSON and arrays
T = TypeVar("T")

_BOOLEANS, _FLOATS = (bool, np.bool_), (float, np.floating)  # to make a union takes longer
_WORD = re.compile(r"\w+")
_TAIL = 0.01  # share of values at each end that lie beyond the last knot: typing errors
_MAX_VECTOR = 1e9  # the sum of squares of larger numbers overflows single precision
_MAX_NUMBER = 1e100  # the difference of larger numbers may be infinite
_TINY = np.finfo(np.float64).tiny  # the least distance between two knots
_OTHER = 0  # the column that rare labels share


@dataclass(frozen=True, eq=False)
class FittedColumn(ABC):
    """What was learned about a column of a table."""

    ARRAYS: ClassVar[Forms] = {"mean": ("f", "width")}
    mean: np.ndarray

    @property
    def width(self) -> int:
        """The number of numbers that a value becomes."""
        return len(self.mean)

    def cells(self, value: Value) -> Cells:
        """Encode one value."""
        _, columns, numbers = self.encode([value], "")
        return list(zip(columns.tolist(), numbers.tolist(), strict=True))

    @abstractmethod
    def example(self) -> Value:
        """Return a value that the column knows."""

    def encode(self, values: Sequence[Value], name: str) -> Entries:
        """Encode values; `name` is the column's in an error."""
        rows = map_values(self.cells, values, name)
        columns = np.array([at for row in rows for at, _ in row], dtype=np.int32)
        numbers = np.array([number for row in rows for _, number in row], dtype=np.float32)
        return np.array([len(row) for row in rows], np.int64), columns, numbers

    def encode_sparse(self, values: Sequence[Value], name: str) -> csr_array:
        """Encode values as sparse rows; the row of a missing value is empty."""
        from scipy.sparse import csr_array

        lengths, columns, numbers = self.encode(values, name)
        indptr = np.cumsum([0, *lengths])
        block = csr_array((numbers, columns, indptr), shape=(len(values), self.width))
        block.sum_duplicates()  # two rare labels of one value share a column
        return block

    def state(self) -> State:
        """Return what was learned, as JSON and arrays."""
        json = {field.name: getattr(self, field.name) for field in fields(self)}
        arrays = {name: json.pop(name) for name in self.ARRAYS}
        return {"form": type(self).__name__, **json}, arrays

    @staticmethod
    def restore(json: dict[str, Any], arrays: Mapping[str, np.ndarray], start: str) -> FittedColumn:
        """Rebuild a column from its `state`; the names of its arrays begin with `start`."""
        form = FORMS[json["form"]]
        settings = {key: value for key, value in json.items() if key != "form"}
        return form(**settings, **take(arrays, form.ARRAYS, start))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class _Vocabulary(FittedColumn):
    columns: dict[str, int]

    def example(self) -> str | None:
        """Return a value that the column knows."""
        return next(iter(self.columns), None)

    def __post_init__(self) -> None:
        check_places("labels", np.array([*self.columns.values()], dtype=np.int64), self.width)


@dataclass(frozen=True, eq=False)
class Labels(_Vocabulary):
    """Category and multi-label: each frequent label has a column; rare ones share the first."""

    separator: str | None  # None: the whole value is one label

    @classmethod
    def fit(cls, spec: plan.Category | plan.MultiLabel, counted: Counts, name: str) -> Labels:
        """Learn which labels there are."""
        separator = spec.separator if spec.kind == "multi-label" else None
        labels = map_values(lambda value: _split_labels(value, separator), counted, name)
        counts = _count_parts(labels, counted)
        frequent = [label for label, count in counts.items() if count >= spec.min_count]
        first = 1 if len(frequent) < len(counts) else 0
        columns = {label: at for at, label in enumerate(frequent, first)}
        columns |= dict.fromkeys([label for label in counts if label not in columns], _OTHER)
        return cls(np.zeros(first + len(frequent), np.float32), columns, separator)

    def cells(self, value: Value) -> Cells:
        """Return the share of each known label."""
        if self.separator is None and isinstance(value, (str, int)):  # one label, as most are
            at = self.columns.get(_as_label(value))
            return [] if at is None else [(at, 1.0)]
        labels = _split_labels(value, self.separator)
        found = [self.columns[label] for label in labels if label in self.columns]
        share = 1.0 / math.sqrt(len(found)) if found else 0.0
        return [(at, share) for at in found]


@dataclass(frozen=True, eq=False)
class Words(_Vocabulary):
    """Text: a bag of words weighted by inverse document frequency, of length 1."""

    ARRAYS: ClassVar[Forms] = {"rarity": ("f", "width"), "mean": ("f", "width")}
    rarity: np.ndarray

    @classmethod
    def fit(cls, spec: plan.Text, counted: Counts, name: str) -> Words:
        """Learn the words that occur often enough, and how rare each is."""
        texts = map_values(_split_words, counted, name)
        counts = _count_parts(texts, counted)
        n_texts = sum(count for words, count in zip(texts, counted.values(), strict=True) if words)
        frequent = [word for word, count in counts.items() if count >= spec.min_count]
        columns = {word: at for at, word in enumerate(frequent[: spec.max_words])}
        rarity = [math.log((1 + n_texts) / (1 + counts[word])) + 1 for word in columns]
        return cls(np.zeros(len(columns), np.float32), columns, np.array(rarity, np.float32))

    def encode(self, values: Sequence[Value], name: str) -> Entries:
        """Encode values; `name` is the column's in an error."""
        known, width = self.columns, max(self.width, 1)
        found = [[known[word] for word in _split_words(v) if word in known] for v in values]
        rows = np.repeat(np.arange(len(found)), [len(words) for words in found])
        columns = np.fromiter(chain.from_iterable(found), np.int64, len(rows))
        pairs, counts = np.unique(rows * width + columns, return_counts=True)
        rows, columns = np.divmod(pairs, width)
        weights = counts * self.rarity[columns].astype(np.float64)
        lengths = np.sqrt(np.bincount(rows, weights**2, len(found)))
        numbers = (weights / lengths[rows]).astype(np.float32)
        return np.bincount(rows, minlength=len(found)), columns.astype(np.int32), numbers


@dataclass(frozen=True, eq=False)
class Knots(FittedColumn):
    """Number, in soft buckets: a value is shared between the two quantiles it lies between."""

    ARRAYS: ClassVar[Forms] = {"knots": ("f", "width"), "mean": ("f", "width")}
    knots: np.ndarray

    @classmethod
    def fit(cls, spec: plan.Number, counted: Counts, name: str) -> Knots:
        """Place the knots at quantiles, each distinct value once."""
        knots = _place_knots(_expand(counted, _as_float, name), spec.n_knots)
        return cls(np.zeros(len(knots), np.float32), knots)

    def number(self, value: Value) -> float:
        """Return the number that a value stands for, NaN if it is missing."""
        return _as_float(value)

    def cells(self, value: Value) -> Cells:
        """Share a number between its two neighbours; beyond the ends, use the last knot."""
        number = self.number(value)
        if math.isnan(number):
            return []
        right = int(self.knots.searchsorted(number))
        if right == 0 or right == self.width:
            return [(min(right, self.width - 1), 1.0)]
        low, high = self.knots[right - 1], self.knots[right]
        share = float((number - low) / (high - low))
        return [(right - 1, 1.0 - share), (right, share)]

    def encode(self, values: Sequence[Value], name: str) -> Entries:
        """Encode values; `name` is the column's in an error."""
        numbers = np.array(map_values(self.number, values, name), np.float64)
        known = ~np.isnan(numbers)
        within = numbers[known].clip(self.knots[0], self.knots[-1])
        left = (self.knots.searchsorted(within) - 1).clip(0)
        right = (left + 1).clip(max=self.width - 1)  # of a single knot, the same
        low, high = self.knots[left], self.knots[right]
        share = (within - low) / np.maximum(high - low, _TINY)
        columns, shares = np.array([left, right]), np.array([1 - share, share], np.float32)
        return 2 * known, columns.T.ravel(), shares.T.ravel()

    def example(self) -> float | str:
        """Return a value that the column knows."""
        return float(self.knots.mean())

    def __post_init__(self) -> None:
        if not (np.diff(self.knots) > 0).all():
            raise ModelFileError("the knots of a column are not in order")


@dataclass(frozen=True, eq=False)
class Ages(Knots):
    """Date: its age in days, in soft buckets."""

    newest: float  # the newest date of the training data, in days since 1970

    @classmethod
    def fit(cls, spec: plan.Date, counted: Counts, name: str) -> Ages:  # type: ignore[override]
        """Learn the newest date, and place the knots at quantiles of the ages."""
        days = _expand(counted, as_days, name)
        newest = float(days.max()) if len(days) else 0.0
        knots = _place_knots(newest - days, spec.n_knots)
        return cls(np.zeros(len(knots), np.float32), knots, newest)

    def number(self, value: Value) -> float:
        """Return the age in days, NaN if the date is missing."""
        return self.newest - as_days(value)

    def example(self) -> str:
        """Return a value that the column knows."""
        day = timedelta(days=self.newest - float(self.knots.mean()))
        return (EPOCH + day).date().isoformat()


@dataclass(frozen=True, eq=False)
class Given(FittedColumn):
    """Vector: numbers as they came."""

    @classmethod
    def fit(cls, spec: plan.Vector, counted: Iterable[Value], name: str) -> Given:
        """Learn the length."""
        vectors = (value for value in counted if isinstance(value, list | tuple | np.ndarray))
        width = next((len(vector) for vector in vectors if len(vector)), 0)
        return cls(np.zeros(width, dtype=np.float32))

    def vector(self, value: Value) -> np.ndarray:
        """Check a vector; an empty one is missing."""
        if not isinstance(value, list | tuple | np.ndarray) and _is_missing(value):
            return np.zeros(0, np.float32)
        try:
            numbers = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            numbers = np.array([[np.nan]])
        if numbers.ndim != 1 or not (np.abs(numbers) <= _MAX_VECTOR).all():
            message = f"a vector holds NaN or something else than numbers up to {_MAX_VECTOR:g}"
            raise DataError(message, hint="scale vectors to about 1; None for an unknown one")
        if len(numbers) not in (0, self.width):
            raise DataError(f"a vector of length {len(numbers)} where {self.width} is expected")
        return numbers.astype(np.float32)

    def encode(self, values: Sequence[Value], name: str) -> Entries:
        """Encode values; `name` is the column's in an error."""
        vectors = map_values(self.vector, values, name)
        lengths = np.array([len(vector) for vector in vectors], np.int64)
        columns = np.tile(np.arange(self.width, dtype=np.int32), np.count_nonzero(lengths))
        return lengths, columns, np.concatenate([np.zeros(0, np.float32), *vectors])

    def example(self) -> list[float]:
        """Return a value that the column knows."""
        return [1.0] * self.width


FORMS = {form.__name__: form for form in (Labels, Knots, Ages, Words, Given)}
FORM_OF = {  # by the kind of a column in the plan
    "category": Labels,
    "multi-label": Labels,
    "number": Knots,
    "date": Ages,
    "text": Words,
    "vector": Given,
}


def distinct_values(
    column: Sequence[Value] | pa.Array | pa.ChunkedArray, name: str
) -> tuple[Sequence[Value], np.ndarray | None]:
    """Return a column's distinct values and, for each row, which it has (None: one each).

    A column is encoded once per distinct value, so a million users cost a gather.
    """
    if not isinstance(column, pa.ChunkedArray | pa.Array):
        return column, None
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_nested(column.type):
        return _split_lists(column, name), None
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("s"), safe=False)
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        column = column.cast(pa.string())  # Arrow has years that Python has not
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _split_lists(column: pa.Array, name: str) -> Sequence[Value]:
    """Return lists of numbers as arrays: Python floats would take far more memory."""
    if not pa.types.is_list(column.type) or pa.types.is_nested(column.type.value_type):
        hint = "texts, numbers, dates or lists of them"
        raise DataError(f"column {name!r}: values of type {column.type}", hint=hint)
    if not pa.types.is_floating(column.type.value_type):
        return column.to_pylist()  # type: ignore[no-any-return]
    lengths = column.value_lengths().fill_null(0).to_numpy()
    flat, ends = column.flatten().to_numpy(zero_copy_only=False), np.cumsum(lengths)
    return [flat[end - n : end] if n else None for end, n in zip(ends, lengths, strict=True)]


def map_values(function: Callable[[Value], T], values: Iterable[Value], name: str) -> list[T]:
    """Apply a function to each value; an error names the column and the value."""
    results = []
    for row, value in enumerate(values):
        try:
            results.append(function(value))
        except DataError as error:
            shown = repr(value) if isinstance(value, str | int | float) else f"value {row}"
            message = f"column {name!r}, {shown}: {error.message}"
            raise DataError(message, hint=error.hint) from None
    return results


def _is_missing(value: Value) -> bool:
    if isinstance(value, str):
        return not value
    return value is None or (isinstance(value, float) and math.isnan(value))


def _as_label(value: Value) -> str:
    """Return a value as text, so that 25, 25.0 and "25" are one label."""
    if not isinstance(value, str):
        if isinstance(value, _BOOLEANS):
            return "true" if value else "false"
        if isinstance(value, _FLOATS) and float(value).is_integer():
            return str(int(value))
    text = str(value).strip()
    return text.lower() if text in ("True", "False", "TRUE", "FALSE") else text


def _split_labels(value: Value, separator: str | None) -> list[str]:
    """Return the distinct labels of a value."""
    parts = [value]
    if isinstance(value, str):
        parts = value.split(separator) if separator is not None else parts
    elif isinstance(value, list | tuple | set | np.ndarray):
        if separator is None:
            raise DataError("a list where one value is expected", hint="kind = 'multi-label'")
        parts = [part for part in value if not _is_missing(part)]
    elif _is_missing(value):
        return []
    return [label for label in dict.fromkeys(map(_as_label, parts)) if label]


def _split_words(value: Value) -> list[str]:
    if not isinstance(value, str):
        value = "" if _is_missing(value) else str(value)
    return _WORD.findall(value.lower())


def _as_float(value: Value) -> float:
    """Return a value as a number, NaN if it is missing."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return math.nan
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        raise DataError("not a number", hint="kind = 'category' takes any value") from None
    if abs(number) > _MAX_NUMBER:
        raise DataError("not a finite number", hint="None for an unknown number")
    return number


def _count_parts(parts: Sequence[Sequence[str]], counted: Counts) -> dict[str, int]:
    """Count the values that have each label or word; the most frequent ones come first."""
    counts: Counter[str] = Counter()
    for own, count in zip(parts, counted.values(), strict=True):
        counts.update(dict.fromkeys(own, count))
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def _expand(counted: Counts, number: Callable[[Value], float], name: str) -> np.ndarray:
    """Repeat each known number as often as it was counted."""
    numbers = np.array(map_values(number, counted, name), np.float64)
    repeated = np.repeat(numbers, np.fromiter(counted.values(), np.int64))
    return repeated[~np.isnan(repeated)]


def _place_knots(known: np.ndarray, n_knots: int) -> np.ndarray:
    """Return quantiles, each distinct one once."""
    steps = np.linspace(_TAIL, 1 - _TAIL, n_knots)
    return np.unique(np.quantile(known, steps)) if len(known) else np.zeros(1)
