"""Requests and answers of the API, and the fields of a person.

`openapi` adds what depends on the limits of the server and on the model. Answers are not built from
these types, which describe them in the OpenAPI document.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from coldhash.features.columns import FittedColumn, Given, Knots, Labels, Standard
from coldhash.features.groups import FeatureEncoder
from coldhash.recommender.recommender import Score
from coldhash.serve.limits import RequestError

MAX_CHOICES = 200
N_DEVIATIONS = 3.0  # from the mean: the range of a standardized number in a form
LARGEST = float(np.finfo(np.float32).max)
DECIMAL = "^[ \\t\\r\\n]*([+-]?[0-9]{1,30}([.][0-9]{0,30})?)?[ \\t\\r\\n]*$"  # or an empty text
UNKNOWN = "or null where it is unknown"


def id_text(value: object) -> str:
    """Return an id as a text."""
    whole = _whole(value)
    if isinstance(whole, int) and not isinstance(whole, bool) and -(2**63) < whole < 2**63:
        return str(whole)
    if isinstance(value, str) and value:
        return value
    raise ValueError("an id is a text that is not empty, or an integer of 64 bits")


def _whole(value: object) -> object:
    """Return a whole number as an int: in JSON, 1.0 is 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# one type, not a union of two: an error then names the field alone
ID: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "integer", "minimum": 1 - 2**63, "maximum": 2**63 - 1},
    ]
}
Id = Annotated[str, BeforeValidator(id_text), WithJsonSchema(ID)]
Count = Annotated[
    int, Field(ge=1, strict=True, description="How many items."), BeforeValidator(_whole)
]
Person = dict[str, Any]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RecommendOptions(_Request):
    """The options of `Recommender.recommend`."""

    k: Count = 10
    exclude: list[Id] | None = Field(None, description="Items not to recommend.")
    candidates: list[Id] | None = Field(None, description="The only items to recommend.")
    score: Score = "real"
    exclude_seen: bool = Field(True, strict=True, description="Leave out what was rated.")


class RecommendRequest(RecommendOptions):
    """A stranger (`user`) or a user of the training data (`user_id`)."""

    user: Person | None = None
    user_id: Id | None = None


class BatchRequest(RecommendOptions):
    """Strangers, or users of the training data."""

    users: list[Person] | None = None
    user_ids: list[Id] | None = None


class EncodeRequest(_Request):
    """A person to encode."""

    user: Person


class ExplainRequest(_Request):
    """A person, and an item to explain."""

    user: Person
    item_id: Id


class ItemsQuery(BaseModel):
    """A search in the catalogue."""

    search: str = Field("", max_length=200, description="Part of title or id.")
    limit: int = Field(20, ge=1, le=100, description="How many items.")


class SimilarQuery(BaseModel):
    """An item of which similar ones are wanted."""

    item_id: str = Field(min_length=1)
    k: int = Field(10, ge=1, description="How many items.")


class ErrorDetail(BaseModel):
    """What is wrong, where, and how to correct it."""

    field: str | None
    message: str
    hint: str | None


class ErrorAnswer(BaseModel):
    """Every answer that is not a success."""

    error: ErrorDetail


class Item(BaseModel):
    """An item of the catalogue."""

    item_id: str
    title: str | None


class RankedItem(Item):
    """An item of an answer; a higher score is better."""

    rank: int
    score: float
    distance: int | None = Field(None, description="Bits that differ; only for score=hamming.")


class PersonCode(BaseModel):
    """The code of a person: bit b of the code is bit b % 8 of byte b // 8."""

    code: str | None = Field(description="Hexadecimal; null where a method has no codes.")
    n_bits: int | None
    weights: dict[str, float] = Field(description="The share of each group; 0: it is missing.")
    fallback: bool = Field(description="Nothing usable was known: these are the popular items.")
    ignored: list[str] = Field(description="Items of the history that the model does not know.")
    model: str = Field(description="The version: from one answer, always one model.")


class RecommendAnswer(PersonCode):
    """The best items, best first."""

    items: list[RankedItem]
    user_id: str | None = Field(None, description="As in the request, if it was there.")


class BatchAnswer(BaseModel):
    """One answer for each person, in the order of the request."""

    answers: list[RecommendAnswer]
    model: str


class EncodeAnswer(PersonCode):
    """A person as a vector and as a code."""

    vector: list[float]


class ExplainAnswer(BaseModel):
    """What contributed to the score of an item: contributions add up to it."""

    item_id: str
    title: str | None
    score: float
    contributions: dict[str, float]
    weights: dict[str, float]
    fallback: bool
    ignored: list[str]
    why: str
    model: str


class ItemsAnswer(BaseModel):
    """Items that a search found."""

    items: list[Item]
    model: str


class SimilarAnswer(BaseModel):
    """The most similar items, best first."""

    items: list[RankedItem]
    model: str


class PersonField(BaseModel):
    """A field of a person that the model uses; values beyond `min` and `max` count as these."""

    name: str
    kind: Literal["category", "multi-label", "number", "text", "vector"]
    group: str
    choices: list[str] = Field([], description="Known values, the most common first.")
    min: float | None = None
    max: float | None = None
    length: int | None = Field(None, description="Of a vector.")

    def check(self, value: object, place: str) -> None:
        """Raise a request error if the model cannot use a value."""
        if value is None or value == "":
            return
        if self.kind == "vector":
            if not isinstance(value, list) or not all(map(_is_number, value)):
                raise field_error(place, "not a list of numbers", f"{self.length} numbers, or null")
            if len(value) not in (0, self.length):
                message = f"a vector of length {len(value)}"
                raise field_error(place, message, f"{self.length} numbers, or null")
        elif self.kind == "number":
            is_text = isinstance(value, str) and re.search(DECIMAL, value)
            if not (is_text or _is_number(value)):
                raise field_error(place, "not a number", f"a number, {UNKNOWN}")
        elif self.kind == "multi-label" and isinstance(value, list):
            if any(isinstance(label, dict | list) for label in value):
                raise field_error(
                    place, "not a list of texts", f"a text or a list of texts, {UNKNOWN}"
                )
        elif isinstance(value, dict | list):
            raise field_error(place, "not a plain value", f"one value, {UNKNOWN}")


class ModelCard(BaseModel):
    """The model, and the fields of a person that it uses."""

    model: str
    method: str
    n_bits: int | None
    n_items: int
    n_users: int
    scale: list[float]
    scores: list[str]
    groups: list[str]
    fields: list[PersonField]
    takes_history: bool


class Status(BaseModel):
    """The state of the service."""

    status: Literal["ok", "ready"]


def person_fields(features: FeatureEncoder) -> dict[str, PersonField]:
    """Return the fields that a fitted encoder uses, by name."""
    return {
        name: PersonField(name=name, group=group_name, **_describe_column(column))
        for group_name, group in features.groups.items()
        for name, column in group.columns.items()
    }


def _describe_column(column: FittedColumn) -> dict[str, Any]:
    if isinstance(column, Labels):
        kind = "category" if column.separator is None else "multi-label"
        return {"kind": kind, "choices": list(islice(column.columns, MAX_CHOICES))}
    if isinstance(column, Knots):
        return {"kind": "number", "min": column.knots[0], "max": column.knots[-1]}
    if isinstance(column, Standard):
        margin = N_DEVIATIONS * column.spread
        return {"kind": "number", "min": column.centre - margin, "max": column.centre + margin}
    if isinstance(column, Given):
        return {"kind": "vector", "length": column.width}
    return {"kind": "text"}


def check_id(value: object, place: str) -> None:
    """Raise a request error if a value is not an id."""
    try:
        id_text(value)
    except ValueError as error:
        raise field_error(place, str(error), "leave it out") from None


def check_history(
    history: object, scale: tuple[float, float], max_history: int, place: str
) -> None:
    """Raise a request error if a history is not an object of ratings."""
    if history is None:
        return
    low, high = scale
    if not isinstance(history, dict):
        hint = f'such as {{"1193": {high:g}}}'
        raise field_error(place, "not an object of item id -> rating", hint)
    if len(history) > max_history:
        raise field_error(place, f"{len(history):,} ratings", f"at most {max_history:,}")
    for item_id, rating in history.items():
        if not item_id:
            raise field_error(place, "an empty item id", "leave it out")
        if not _is_number(rating) or not low <= rating <= high:
            hint = f"a number from {low:g} to {high:g}"
            raise field_error(f"{place}.{item_id}", "not a rating", hint)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= LARGEST


def field_error(field: str, message: str, hint: str) -> RequestError:
    """Return the error of a field with a wrong value."""
    return RequestError(422, message, field=field, hint=hint)
