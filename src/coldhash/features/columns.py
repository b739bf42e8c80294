"""One column of a table -> a block of numbers, learned once and applied to one value or a million.

Each kind has a fitted form with the same parts: `width`, how many numbers a value becomes; `mean`,
what stands in where the value is missing (the average entity); and `cells`, which turns one value
into the few numbers that are not zero. No cells means missing: None, NaN, the empty text and a
value never seen in training all are; only a value of the wrong type is an error.

A column of a table is encoded once per distinct value, so a million users cost a gather.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from coldhash.errors import DataError

if TYPE_CHECKING:
    from coldhash.data import plan  # only its names: it is not needed to serve a model

Cells = list[tuple[int, float]]  # (column, number) of one value

WORD = re.compile(r"\w+")
TAIL = 0.01  # of the values at each end share the end knot: a few of them are typing errors
OTHER = 0  # the column that rare values share


@dataclass(frozen=True, eq=False)
class Labels:
    """Category and multi-label: each known label has a column; rare ones share the first."""

    columns: dict[str, int]
    mean: np.ndarray
    separator: str | None  # None: the whole value is one label

    @property
    def width(self) -> int:
        """How many numbers a value becomes."""
        return len(self.mean)

    @classmethod
    def fit(cls, spec: plan.Category | plan.MultiLabel, values: Mapping[Any, int]) -> Labels:
        """Learn which labels there are."""
        separator = spec.separator if spec.kind == "multi-label" else None
        counts: Counter[str] = Counter()
        for value, count in values.items():
            for label in _labels(value, separator):
                counts[label] += count
        ordered = sorted(counts, key=lambda label: (-counts[label], label))
        often = [label for label in ordered if counts[label] >= spec.min_count]
        rare = dict.fromkeys(ordered[len(often) :], OTHER)
        first = 1 if rare else 0
        columns = {label: at for at, label in enumerate(often, first)} | rare
        return cls(columns, np.zeros(first + len(often), dtype=np.float32), separator)

    def cells(self, value: Any) -> Cells:
        """Give the share of each known label."""
        found = [self.columns[x] for x in _labels(value, self.separator) if x in self.columns]
        share = 1.0 / math.sqrt(len(found)) if found else 0.0
        return [(at, share) for at in found]

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Give what was learned, as JSON and arrays."""
        return {"columns": self.columns, "separator": self.separator}, {"mean": self.mean}


@dataclass(frozen=True, eq=False)
class Knots:
    """Number, in soft buckets: a value is shared between the two quantiles it lies between."""

    knots: np.ndarray
    mean: np.ndarray

    @property
    def width(self) -> int:
        """How many numbers a value becomes."""
        return len(self.knots)

    @classmethod
    def fit(cls, spec: plan.Number, values: Mapping[Any, int]) -> Knots:
        """Place the knots at quantiles, each distinct value once."""
        known = _numbers(values)
        steps = np.linspace(TAIL, 1 - TAIL, spec.n_knots)
        knots = np.unique(np.quantile(known, steps)) if len(known) else np.zeros(1)
        return cls(knots, np.zeros(len(knots), dtype=np.float32))

    def cells(self, value: Any) -> Cells:
        """Share the value between its two neighbours; beyond the ends, the last knot."""
        number = _number(value)
        if number is None:
            return []
        right = int(np.searchsorted(self.knots, number))
        if right == 0 or right == len(self.knots):
            return [(min(right, len(self.knots) - 1), 1.0)]
        low, high = self.knots[right - 1], self.knots[right]
        share = float((number - low) / (high - low))
        return [(right - 1, 1.0 - share), (right, share)]

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Give what was learned, as JSON and arrays."""
        return {}, {"knots": self.knots, "mean": self.mean}


@dataclass(frozen=True, eq=False)
class Standard:
    """Number, as one standard score, cut at 4 deviations so that a typing error cannot shout."""

    centre: float
    spread: float
    mean: np.ndarray
    width = 1

    @classmethod
    def fit(cls, values: Mapping[Any, int]) -> Standard:
        """Learn mean and deviation."""
        known = _numbers(values)
        if not len(known):
            return cls(0.0, 1.0, np.zeros(1, dtype=np.float32))
        spread = float(known.std()) or 1.0
        return cls(float(known.mean()), spread, np.zeros(1, dtype=np.float32))

    def cells(self, value: Any) -> Cells:
        """Give the score."""
        number = _number(value)
        if number is None:
            return []
        return [(0, min(max((number - self.centre) / self.spread, -4.0), 4.0))]

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Give what was learned, as JSON and arrays."""
        return {"centre": self.centre, "spread": self.spread}, {"mean": self.mean}


@dataclass(frozen=True, eq=False)
class Words:
    """Text: a bag of words, each weighted by how rare it is, of length 1."""

    columns: dict[str, int]
    rarity: np.ndarray
    mean: np.ndarray

    @property
    def width(self) -> int:
        """How many numbers a text becomes."""
        return len(self.rarity)

    @classmethod
    def fit(cls, spec: plan.Text, values: Mapping[Any, int]) -> Words:
        """Learn the words that occur often enough, and how rare each is."""
        counts: Counter[str] = Counter()
        n_texts = 0
        for value, count in values.items():
            words = set(_words(value))
            n_texts += count if words else 0
            for word in words:
                counts[word] += count
        often = [word for word in counts if counts[word] >= spec.min_count]
        often = sorted(often, key=lambda word: (-counts[word], word))[: spec.max_words]
        columns = {word: at for at, word in enumerate(often)}
        rarity = np.array(
            [math.log((1 + n_texts) / (1 + counts[word])) + 1 for word in often], np.float32
        )
        return cls(columns, rarity, np.zeros(len(often), dtype=np.float32))

    def cells(self, value: Any) -> Cells:
        """Weigh the known words of the text."""
        counts = Counter(self.columns[word] for word in _words(value) if word in self.columns)
        weighed = [(at, count * float(self.rarity[at])) for at, count in counts.items()]
        length = math.sqrt(sum(weight * weight for _, weight in weighed))
        return [(at, weight / length) for at, weight in weighed]

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Give what was learned, as JSON and arrays."""
        return {"columns": self.columns}, {"rarity": self.rarity, "mean": self.mean}


@dataclass(frozen=True, eq=False)
class Given:
    """Vector: numbers as they came."""

    mean: np.ndarray

    @property
    def width(self) -> int:
        """How long every vector is."""
        return len(self.mean)

    @classmethod
    def fit(cls, values: Sequence[Any]) -> Given:
        """Learn the length."""
        width = next((len(value) for value in values if value is not None), 0)
        return cls(np.zeros(width, dtype=np.float32))

    def vector(self, value: Any) -> np.ndarray | None:
        """Check a vector; None if there is none."""
        if value is None or len(value) == 0:
            return None
        if len(value) != self.width:
            raise DataError(f"a vector of length {len(value)} where {self.width} is expected")
        numbers = np.asarray(value, dtype=np.float32)
        if not np.isfinite(numbers).all():
            raise DataError("a vector holds NaN or infinity", hint="None for an unknown vector")
        return numbers

    def cells(self, value: Any) -> Cells:
        """Give every number of the vector."""
        numbers = self.vector(value)
        return [] if numbers is None else list(enumerate(numbers.tolist()))

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Give what was learned, as JSON and arrays."""
        return {}, {"mean": self.mean}


FittedColumn = Labels | Knots | Standard | Words | Given


FORMS: dict[str, type[FittedColumn]] = {
    form.__name__: form for form in (Labels, Knots, Standard, Words, Given)
}


@dataclass(frozen=True, eq=False)
class Tally:
    """The distinct values of a column, and how often each occurs (None: one row each)."""

    values: Sequence[Any]
    counts: np.ndarray | None


def columns_state(
    columns: Mapping[str, FittedColumn],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Give what was learned of some columns, as JSON and arrays."""
    json: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, column in columns.items():
        part, more = column.state()
        json[name] = {"form": type(column).__name__, **part}
        arrays |= {f"{name}/{key}": array for key, array in more.items()}
    return json, arrays


def stored_columns(
    json: Mapping[str, Any], arrays: Mapping[str, np.ndarray], prefix: str
) -> dict[str, FittedColumn]:
    """Rebuild columns from what `columns_state` gave; the arrays' names begin with `prefix`."""
    fitted: dict[str, FittedColumn] = {}
    for name, part in json.items():
        start = f"{prefix}{name}/"
        own = {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
        rest = {key: value for key, value in part.items() if key != "form"}
        form: Any = FORMS[part["form"]]
        fitted[name] = form(**rest, **own)
    return fitted


def fit_column(spec: plan.Column, column: pa.ChunkedArray, name: str) -> FittedColumn:
    """Learn one column from the training part."""
    return fit_block(spec, column, name)[0]


def fit_block(
    spec: plan.Column, column: pa.ChunkedArray, name: str
) -> tuple[FittedColumn, csr_array]:
    """Learn one column, and encode it."""
    values, codes = distinct_values(column)
    counts = np.bincount(codes, minlength=len(values)) if codes is not None else None
    fitted, block = _fit_tally(spec, Tally(values, counts), name)
    return fitted, block if codes is None else block[codes]


def count_values(spec: plan.Column, column: pa.ChunkedArray, name: str, alone: bool) -> Tally:
    """Count the values of one stretch of a column, small enough to be sent to who adds them up.

    Lists are counted by value and vectors stand for their mean, unless the stretch is `alone`.
    """
    values, codes = distinct_values(column)
    if codes is not None:
        return Tally(values, np.bincount(codes, minlength=len(values)))
    if alone:
        return Tally(values, None)
    if spec.kind == "vector":
        block, known = dense_block(Given.fit(values), values, name)
        mean = block[known].mean(axis=0, dtype=np.float64) if known.any() else None
        return Tally([mean], np.array([known.sum()]))
    counted = Counter(map(_hashable, values))
    return Tally(list(counted), np.array(list(counted.values())))


def fit_tallies(spec: plan.Column, tallies: Sequence[Tally], name: str) -> FittedColumn:
    """Learn one column from what was counted, stretch by stretch."""
    if len(tallies) == 1:
        return _fit_tally(spec, tallies[0], name)[0]
    if spec.kind == "vector":
        values = [value for tally in tallies for value in tally.values]
        counts = np.concatenate([tally.counts for tally in tallies if tally.counts is not None])
        return _fit_tally(spec, Tally(values, counts), name)[0]
    total: dict[Any, int] = {}
    for tally in tallies:
        assert tally.counts is not None
        for value, count in zip(tally.values, tally.counts.tolist(), strict=True):
            total[value] = total.get(value, 0) + count
    merged = Tally(list(total), np.array(list(total.values()), dtype=np.int64))
    return _fit_tally(spec, merged, name)[0]


def _fit_tally(spec: plan.Column, tally: Tally, name: str) -> tuple[FittedColumn, csr_array]:
    """Learn a column; gives also the numbers of each distinct value."""
    try:
        form = _fit_form(spec, tally.values, tally.counts)
    except DataError as error:
        raise DataError(f"column {name!r}: {error.message}", hint=error.hint) from None
    block = sparse_block(form, tally.values, name)
    counts = np.ones(len(tally.values)) if tally.counts is None else tally.counts
    weights = counts.astype(np.float64)
    weights[np.diff(block.indptr) == 0] = 0.0
    mean = (weights @ block) / max(weights.sum(), 1.0)
    return replace(form, mean=mean.astype(np.float32)), block


def _fit_form(spec: plan.Column, values: Sequence[Any], counts: np.ndarray | None) -> FittedColumn:
    if spec.kind == "vector":
        return Given.fit(values)
    if counts is None:  # lists, which cannot be counted by value
        weighed = Counter(map(_hashable, values))
    else:
        weighed = Counter(dict(zip(values, counts.tolist(), strict=True)))
    if spec.kind == "category" or spec.kind == "multi-label":
        return Labels.fit(spec, weighed)
    if spec.kind == "text":
        return Words.fit(spec, weighed)
    return Knots.fit(spec, weighed) if spec.method == "buckets" else Standard.fit(weighed)


def distinct_values(column: Any) -> tuple[Sequence[Any], np.ndarray | None]:
    """Give a column's distinct values and, for each row, which one it has (None: one each)."""
    if not isinstance(column, pa.ChunkedArray | pa.Array):
        return column, None
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_nested(column.type):
        return _lists(column), None
    encoded = column.dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


def _lists(column: pa.Array) -> Sequence[Any]:
    """Give lists of numbers as arrays: a million embeddings must not become Python floats."""
    if not pa.types.is_floating(column.type.value_type):
        return column.to_pylist()  # type: ignore[no-any-return]
    lengths = column.value_lengths().fill_null(0).to_numpy()
    flat, ends = column.flatten().to_numpy(zero_copy_only=False), np.cumsum(lengths)
    return [flat[end - n : end] if n else None for end, n in zip(ends, lengths, strict=True)]


def dense_block(
    column: FittedColumn, values: Sequence[Any], name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Turn values into rows of numbers, and say which are known; unknown rows are zeros."""
    block = np.zeros((len(values), column.width), dtype=np.float32)
    known = np.zeros(len(values), dtype=bool)
    for row, value in enumerate(values):
        try:
            if isinstance(column, Given):
                vector = column.vector(value)
                known[row] = vector is not None
                if vector is not None:
                    block[row] = vector
            else:
                cells = column.cells(value)
                known[row] = bool(cells)
                for at, number in cells:
                    block[row, at] += number
        except DataError as error:
            raise _named(error, name, row, value) from None
    return block, known


def sparse_block(column: FittedColumn, values: Sequence[Any], name: str) -> csr_array:
    """Turn values into sparse rows; an empty row is unknown."""
    rows = []
    for row, value in enumerate(values):
        try:
            rows.append(column.cells(value))
        except DataError as error:
            raise _named(error, name, row, value) from None
    indptr = np.cumsum([0, *map(len, rows)])
    columns = np.array([at for row in rows for at, _ in row], dtype=np.int32)
    numbers = np.array([number for row in rows for _, number in row], dtype=np.float32)
    block = csr_array((numbers, columns, indptr), shape=(len(rows), column.width))
    block.sum_duplicates()  # two rare labels of one value meet in one column
    return block


def _named(error: DataError, name: str, row: int, value: Any) -> DataError:
    shown = repr(value) if isinstance(value, str | int | float) else f"value {row}"
    return DataError(f"column {name!r}, {shown}: {error.message}", hint=error.hint)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | np.ndarray) else value


def _missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _label(value: Any) -> str:
    """Spell a value so that 25, 25.0 and "25" are one label."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def _labels(value: Any, separator: str | None) -> list[str]:
    """Give the distinct labels of a value."""
    if isinstance(value, list | tuple | set | np.ndarray):
        if separator is None:
            raise DataError("a list where one value is expected", hint="kind = 'multi-label'")
        parts: Sequence[Any] = [part for part in value if not _missing(part)]
    elif _missing(value):
        return []
    elif separator is not None and isinstance(value, str):
        parts = value.split(separator)
    else:
        parts = [value]
    return [label for label in dict.fromkeys(map(_label, parts)) if label]


def _number(value: Any) -> float | None:
    if _missing(value) or (isinstance(value, str) and not value.strip()):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise DataError("not a number", hint="kind = 'category' takes any value") from None
    if math.isinf(number):
        raise DataError("not a finite number", hint="None for an unknown number")
    return None if math.isnan(number) else number


def _numbers(values: Mapping[Any, int]) -> np.ndarray:
    """Spread counted values out again: all known numbers."""
    known = [(number, n) for value, n in values.items() if (number := _number(value)) is not None]
    return np.repeat([number for number, _ in known], [n for _, n in known]).astype(np.float64)


def _words(value: Any) -> list[str]:
    return [] if _missing(value) else WORD.findall(str(value).lower())
