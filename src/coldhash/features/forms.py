"""The forms that columns take: one value -> the few numbers of it that are not zero.

Each form has the same parts: `width`, how many numbers a value becomes; `mean`, what stands in
where the value is missing (the average entity); and `cells`, which encodes one value. No cells mean
missing: None, NaN, the empty text and a value never seen in training all are; only a value of the
wrong type is an error.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from coldhash.arrays.checks import Forms
from coldhash.errors import DataError

if TYPE_CHECKING:
    from coldhash.data import plan  # only its names: it is not needed to serve a model

Cells = list[tuple[int, float]]  # (column, number) of one value
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]  # cells by value, their columns and numbers

WORD = re.compile(r"\w+")
TAIL = 0.01  # of the values at each end share the end knot: a few of them are typing errors
LARGEST = 1e9  # in a vector: sums of squares of larger numbers leave single precision
FARTHEST = 1e100  # of a number: differences of larger ones may be infinite
OTHER = 0  # the column that rare values share


@dataclass(frozen=True, eq=False)
class Labels:
    """Category and multi-label: each known label has a column; rare ones share the first."""

    TENSORS: ClassVar[Forms] = {"mean": ("f", "width")}
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

    TENSORS: ClassVar[Forms] = {"knots": ("f", "width"), "mean": ("f", "width")}
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

    def entries(self, numbers: np.ndarray) -> Entries:
        """Give the cells of many numbers at once, NaN for missing ones."""
        right, known = np.searchsorted(self.knots, numbers), ~np.isnan(numbers)
        inside = known & (right > 0) & (right < len(self.knots))
        lengths = known.astype(np.int64) + inside
        first = np.cumsum(lengths) - lengths
        at, shares = np.zeros(lengths.sum(), np.int32), np.ones(lengths.sum(), np.float32)
        at[first[known]] = np.minimum(right, len(self.knots) - 1)[known]
        first, right = first[inside], right[inside]
        low, high = self.knots[right - 1], self.knots[right]
        share = (numbers[inside] - low) / (high - low)
        at[first], at[first + 1] = right - 1, right
        shares[first], shares[first + 1] = 1.0 - share, share
        return lengths, at, shares

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Give what was learned, as JSON and arrays."""
        return {}, {"knots": self.knots, "mean": self.mean}


@dataclass(frozen=True, eq=False)
class Standard:
    """Number, as one standard score, cut at 4 deviations so that a typing error cannot shout."""

    TENSORS: ClassVar[Forms] = {"mean": ("f", 1)}
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

    def entries(self, numbers: np.ndarray) -> Entries:
        """Give the cells of many numbers at once, NaN for missing ones."""
        known = ~np.isnan(numbers)
        scores = np.clip((numbers[known] - self.centre) / self.spread, -4.0, 4.0)
        return known.astype(np.int64), np.zeros(len(scores), np.int32), scores.astype(np.float32)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Give what was learned, as JSON and arrays."""
        return {"centre": self.centre, "spread": self.spread}, {"mean": self.mean}


@dataclass(frozen=True, eq=False)
class Words:
    """Text: a bag of words, each weighted by how rare it is, of length 1."""

    TENSORS: ClassVar[Forms] = {"rarity": ("f", "width"), "mean": ("f", "width")}
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

    TENSORS: ClassVar[Forms] = {"mean": ("f", "width")}
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
        try:
            with np.errstate(over="ignore"):  # what float32 cannot hold is refused below
                numbers = np.asarray(value, dtype=np.float64).astype(np.float32)
        except (TypeError, ValueError, OverflowError):
            raise DataError("a vector holds something that is not a number") from None
        if numbers.ndim != 1:
            raise DataError("a vector holds lists", hint="numbers only")
        if not np.isfinite(numbers).all():
            raise DataError("a vector holds NaN or infinity", hint="None for an unknown vector")
        if np.abs(numbers).max() > LARGEST:
            raise DataError(
                f"a vector holds a number beyond {LARGEST:g}", hint="scale vectors to about 1"
            )
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
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        raise DataError("not a number", hint="kind = 'category' takes any value") from None
    if abs(number) > FARTHEST:
        raise DataError("not a finite number", hint="None for an unknown number")
    return None if math.isnan(number) else number


def plain_numbers(values: Sequence[Any]) -> np.ndarray | None:
    """Give values as an array, NaN for None; None if there is anything but finite numbers."""
    if not all(value is None or isinstance(value, int | float) for value in values):
        return None
    try:
        numbers = np.array([math.nan if value is None else value for value in values], np.float64)
    except OverflowError:
        return None
    return None if (np.abs(numbers) > FARTHEST).any() else numbers


def _numbers(values: Mapping[Any, int]) -> np.ndarray:
    """Spread counted values out again: all known numbers."""
    plain = plain_numbers(list(values))
    if plain is not None:
        counts = np.fromiter(values.values(), np.int64, len(values))
        return np.repeat(plain[~np.isnan(plain)], counts[~np.isnan(plain)])
    known = [(number, n) for value, n in values.items() if (number := _number(value)) is not None]
    return np.repeat([number for number, _ in known], [n for _, n in known]).astype(np.float64)


def _words(value: Any) -> list[str]:
    return [] if _missing(value) else WORD.findall(str(value).lower())
