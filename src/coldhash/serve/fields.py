"""What a model wants to know of people: for forms, and to check what people say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np

from coldhash.features.columns import FittedColumn, Given, Knots, Labels, Standard
from coldhash.features.groups import FeatureEncoder
from coldhash.features.people import HISTORY
from coldhash.recommender.recommender import USER_ID
from coldhash.serve.errors import Refused
from coldhash.serve.schemas import spelled

MAX_CHOICES = 200
WIDE = 3.0  # deviations from the mean that a form offers
LARGEST = float(np.finfo(np.float32).max)
SPELLED = "^[ \\t\\r\\n]*([+-]?[0-9]{1,30}([.][0-9]{0,30})?)?[ \\t\\r\\n]*$"  # a number, or nothing

Kind = Literal["category", "multi-label", "number", "text", "vector"]
Scale = tuple[float, float]


@dataclass(frozen=True)
class Field:
    """One thing to know of a person."""

    name: str
    kind: Kind
    group: str
    choices: tuple[str, ...] = ()  # the most common first, as far as is known
    low: float | None = None  # the usual range of a number: beyond it, values count as its ends
    high: float | None = None
    length: int | None = None  # of a vector

    def as_json(self) -> dict[str, Any]:
        """Give the field as the service tells it."""
        return {
            "name": self.name,
            "kind": self.kind,
            "group": self.group,
            "choices": list(self.choices),
            "min": self.low,
            "max": self.high,
            "length": self.length,
        }

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of what `check_person` takes."""
        plain = ["string", "number", "boolean", "null"]
        number = {"type": "number", "minimum": -LARGEST, "maximum": LARGEST}
        empty = [{"const": ""}, {"type": "null"}]
        if self.kind == "vector":
            sizes = [{"maxItems": 0}, {"minItems": self.length, "maxItems": self.length}]
            return {"anyOf": [{"type": "array", "items": number, "anyOf": sizes}, *empty]}
        if self.kind == "number":
            return {"anyOf": [number, {"type": "string", "pattern": SPELLED}, {"type": "null"}]}
        if self.kind == "multi-label":
            return {"anyOf": [{"type": plain}, {"type": "array", "items": {"type": plain}}]}
        return {"type": plain}

    def example(self) -> Any:
        """Return a value that is neither missing nor unusual."""
        if self.kind == "vector":
            return [0.0] * (self.length or 0)
        if self.kind == "number":
            return round(((self.low or 0) + (self.high or 0)) / 2)
        return self.choices[0] if self.choices else "some words"


def fields_of(features: FeatureEncoder) -> dict[str, Field]:
    """Read from a fitted encoder what it takes."""
    return {
        name: _field(name, group_name, column)
        for group_name, group in features.groups.items()
        for name, column in group.columns.items()
    }


def _field(name: str, group: str, column: FittedColumn) -> Field:
    if isinstance(column, Labels):
        kind: Kind = "category" if column.separator is None else "multi-label"
        return Field(name, kind, group, tuple(islice(column.columns, MAX_CHOICES)))
    if isinstance(column, Knots):
        return Field(name, "number", group, (), float(column.knots[0]), float(column.knots[-1]))
    if isinstance(column, Standard):
        low, high = (column.centre + side * WIDE * column.spread for side in (-1, 1))
        return Field(name, "number", group, (), low, high)
    if isinstance(column, Given):
        return Field(name, "vector", group, length=column.width)
    return Field(name, "text", group)


def check_person(
    person: Mapping[str, Any], fields: Mapping[str, Field], scale: Scale, max_history: int, at: str
) -> None:
    """Refuse what the model cannot take, by the name of the field; `at` is the person's place.

    A value that the model has never seen is no error: it counts as unknown. A field that the model
    has never seen is one, because it is usually a typing error.
    """
    for name, value in person.items():
        if name == HISTORY:
            _check_history(value, scale, max_history, f"{at}.{HISTORY}")
        elif name in fields:
            _check_value(value, fields[name], f"{at}.{name}")
        elif name != USER_ID:
            known = ", ".join([*fields, HISTORY])
            raise _wrong(f"{at}.{name}", "the model knows no such field", f"one of {known}")
        elif value not in (None, ""):
            try:
                spelled(value)
            except ValueError as error:
                raise _wrong(f"{at}.{name}", str(error), "leave it out") from None


def _check_value(value: Any, field: Field, at: str) -> None:
    if value is None or value == "":
        return
    if field.kind == "vector":
        if not isinstance(value, list) or not all(map(_is_number, value)):
            raise _wrong(at, "not a list of numbers", f"{field.length} numbers, or null")
        if len(value) not in (0, field.length):
            raise _wrong(at, f"a vector of length {len(value)}", f"{field.length} numbers, or null")
    elif field.kind == "number":
        if not (_is_number(value) or _spells_number(value)):
            raise _wrong(at, "not a number", "a number, or null where it is unknown")
    elif isinstance(value, dict | list):
        several = field.kind == "multi-label" and isinstance(value, list)
        if not several or any(isinstance(each, dict | list) for each in value):
            wanted = "a text or a list of texts" if field.kind == "multi-label" else "one value"
            raise _wrong(at, "not a plain value", f"{wanted}, or null where it is unknown")


def _check_history(history: Any, scale: Scale, max_history: int, at: str) -> None:
    if history is None:
        return
    low, high = scale
    if not isinstance(history, dict):
        raise _wrong(at, "not an object of item id -> rating", f'such as {{"1193": {high:g}}}')
    if len(history) > max_history:
        raise _wrong(at, f"{len(history):,} ratings", f"at most {max_history:,}")
    for item_id, rating in history.items():
        if not item_id:
            raise _wrong(at, "an empty item id", "leave it out")
        if not _is_number(rating) or not low <= rating <= high:
            raise _wrong(f"{at}.{item_id}", "not a rating", f"a number from {low:g} to {high:g}")


def _is_number(value: Any) -> bool:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return numeric and abs(value) <= LARGEST


def _spells_number(value: Any) -> bool:
    """Whether a text is a number in decimals, or empty."""
    return isinstance(value, str) and re.search(SPELLED, value) is not None


def _wrong(field: str, message: str, hint: str) -> Refused:
    return Refused(422, message, field=field, hint=hint)
