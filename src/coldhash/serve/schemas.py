"""Requests and answers of the API, and the fields of a person.

The types of requests depend on the model and the limits of the server: what they allow is what the
OpenAPI document says. Answers are not built from their types, which describe them in the document.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Annotated, Any, Literal

import numpy as np
import orjson
import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, WithJsonSchema
from typing_extensions import TypedDict

from coldhash.data.dates import as_days
from coldhash.features.columns import Ages, FittedColumn, Given, Knots, Labels
from coldhash.features.groups import FeatureEncoder
from coldhash.features.people import ANSWERS, HISTORY
from coldhash.recommender.ask import QuestionKind
from coldhash.recommender.export import MAX_PLANES
from coldhash.recommender.recommender import USER_ID, Recommender, Score
from coldhash.recommender.where import BOUNDS, Kind, kind_of
from coldhash.serve.limits import HINT, Limits, RequestError

MAX_CHOICES = 200
LARGEST = float(np.finfo(np.float32).max)
DECIMAL = "^[ \\t\\r\\n]*([+-]?[0-9]{1,30}([.][0-9]{0,30})?)?[ \\t\\r\\n]*$"  # or an empty text
REF = "#/components/schemas/{model}"
NULL = {"type": "null"}
RATED, LISTED = "[rated]", "[listed]"  # the two forms of a history
NO_FIELDS = ("", "[key]", RATED, LISTED)  # in the place of an error
PEOPLE = ("users", "user", "user_ids", "user_id")  # fields that name people
SUBJECTS = ("user_ids", "user_id", "users", "user", "item_id")  # what an error may be about
TEXTS = ("search", "item_id", "user_id")  # parameters in an address that are not JSON
MAX_FOUND = 100  # items of a search
DESCRIPTIONS = {
    "where": "Columns of items: a value, a list of which any matches, or a range of numbers.",
    "fields": "Columns of items to show beside the title.",
    "planes": "How many bit planes to round the vector to, for SQL.",
    "popularity": "How much it counts what everybody likes; below 1 only for a model with a level.",
    "search": "Part of title or id.",
}

EXPECTED = {  # by the kind of a field
    "number": "a number",
    "date": "a date such as 2024-01-31",
    "multi-label": "a text or a list of texts",
    "vector": "a list of {} numbers",
}
ERRORS = {  # message and hint by the type of an error of pydantic
    "dict_type": ("not an object", HINT),
    "model_type": ("not an object", HINT),
    "extra_forbidden": ("there is no such field", HINT),
    "greater_than_equal": ("less than {ge:.15g}", "at least {ge:.15g}"),
    "less_than_equal": ("more than {le:.15g}", "at most {le:.15g}"),
    "string_too_long": ("too long a text", "at most {max_length} characters"),
    "too_long": ("more entries than this server allows", "at most {max_length}"),
}

Person = dict[str, Any]
Request = dict[str, Any]  # fields and values
Schema = dict[str, Any]


def _options(function: Callable[..., object], *names: str) -> Request:
    """Return arguments of a function with their defaults."""
    known = inspect.signature(function).parameters
    return {name: known[name].default for name in names}


OPTIONS = _options(
    Recommender.recommend,
    *("k", "exclude", "candidates", "where", "score", "exclude_seen", "popularity", "fields"),
)
# the fields of each request and their defaults; ... for one that must be there
REQUESTS: dict[str, Request] = {
    "RecommendRequest": {"user": None, "user_id": None, **OPTIONS},
    "BatchRequest": {"users": None, "user_ids": None, **OPTIONS},
    "EncodeRequest": {"user": ..., "planes": None},
    "ExplainRequest": {"user": ..., "item_id": ..., "popularity": OPTIONS["popularity"]},
    "AskRequest": _options(Recommender.ask, "user", "n", "kinds", "exclude", "candidates", "where"),
    "ItemsQuery": {"fields": None, "search": "", "limit": 20},
    "SimilarQuery": _options(Recommender.similar_items, "k", "fields", "where") | {"item_id": ...},
}


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
INT64 = {"type": "integer", "minimum": 1 - 2**63, "maximum": 2**63 - 1}
ID: Schema = {"anyOf": [{"type": "string", "minLength": 1}, INT64]}
Id = Annotated[str, BeforeValidator(id_text), WithJsonSchema(ID)]
Name = Annotated[
    str | None,
    BeforeValidator(lambda value: value if value in (None, "") else id_text(value)),
    WithJsonSchema({"anyOf": [ID, {"const": ""}, NULL]}),
]
ItemId = Annotated[str, Field(min_length=1)]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Plain = str | bool | int | float | None  # without the int, 1 would become 1.0


@dataclass(frozen=True)
class PersonField:
    """A field of a person that the model uses; values beyond `min` and `max` count as these."""

    name: str
    kind: Literal["category", "date", "multi-label", "number", "text", "vector"]
    group: str
    choices: Annotated[tuple[str, ...], Field(description="Values, the most common first.")] = ()
    min: float | None = None
    max: float | None = None
    length: Annotated[int | None, Field(description="Of a vector.")] = None

    @property
    def expected(self) -> str:
        """What a value is, in words."""
        return EXPECTED.get(self.kind, "one value").format(self.length)


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
        return {"kind": kind, "choices": tuple(islice(column.columns, MAX_CHOICES))}
    if isinstance(column, Ages):
        return {"kind": "date"}
    if isinstance(column, Knots):
        return {"kind": "number", "min": column.knots[0], "max": column.knots[-1]}
    if isinstance(column, Given):
        return {"kind": "vector", "length": column.width}
    return {"kind": "text"}


def item_columns(model: Recommender) -> dict[str, Kind | None]:
    """Return the columns of the item table, and how `where` compares them."""
    return {column.name: kind_of(column.type) for column in model.item_table.schema}


class RequestTypes:
    """The types of requests for a model and the limits of a server."""

    def __init__(self, model: Recommender, limits: Limits) -> None:
        self._fields, self._known = person_fields(model.features), model.person_fields
        person = _person_type(model, self._fields, limits.max_history)
        self.person, self.id = TypeAdapter[Any](person), TypeAdapter[Any](Id)
        # each by its name, made when it is first used
        self.request = cache(partial(_request_type, _field_types(model, person, limits)))

    def read(self, name: str, values: object) -> Request:
        """Return the fields of a request, with their defaults; ids are texts."""
        try:
            found = vars(self.request(name).model_validate(values))
        except pydantic.ValidationError as error:
            raise self._first_error(error) from None
        people = [field for field in PEOPLE if field in found]
        if len(people) > 1 and subject(found) is None:
            raise field_error(people[0], "nobody is named", f"{', '.join(people)}, or both")
        return found

    def check(self, kind: TypeAdapter[Any], value: object, place: str) -> Any:
        """Return a person or an id of a batch; ids are texts."""
        try:
            return kind.validate_python(value)
        except pydantic.ValidationError as error:
            raise self._first_error(error, place) from None

    def _first_error(self, error: pydantic.ValidationError, place: str = "") -> RequestError:
        """Return the first of the errors of a validation as that of a request."""
        first = error.errors(include_url=False)[0]
        kind = first["type"]
        parts = [str(part) for part in (place, *first["loc"]) if part not in NO_FIELDS]
        field = self._fields.get(parts[1]) if len(parts) > 1 else None
        if field is not None:
            hint = f"{field.expected}, or null where it is unknown"
            return field_error(f"{parts[0]}.{field.name}", f"not {field.expected}", hint)
        message = first["msg"].removeprefix("Value error, ").replace("Input should", "it should")
        hint = HINT
        if kind in ERRORS:
            message, hint = (text.format(**first.get("ctx", {})) for text in ERRORS[kind])
        if kind == "extra_forbidden" and len(parts) > 1:
            hint = f"one of {', '.join(self._known)}"
        return field_error(".".join(parts) or "body", message, hint)


def _person_type(model: Recommender, fields: Mapping[str, PersonField], most: int) -> Any:
    """Return the type of a person with at most `most` rated items.

    A value that the model has never seen is no error: it counts as unknown. A field that the model
    has never seen is one, because it is usually a typing error.
    """
    low, high = model.history_scale
    rating = Annotated[float, Field(ge=low, le=high)]
    rated = Field(max_length=most, description="Item id -> rating.")
    listed = Field(max_length=most, description="Ids of items without ratings.")
    history = Annotated[
        Annotated[dict[ItemId, rating], rated, pydantic.Tag(RATED)]
        | Annotated[list[Id], listed, pydantic.Tag(LISTED)],
        pydantic.Discriminator(lambda history: LISTED if isinstance(history, list) else RATED),
    ]
    types: dict[str, Any] = {USER_ID: Name, HISTORY: history | None}
    if model.encoder.answers is not None:
        asked = Field(max_length=most, description="Item id -> rating, null: unknown.")
        types[ANSWERS] = Annotated[dict[ItemId, rating | None], asked] | None
    types |= {name: _value_type(about) for name, about in fields.items()}
    person: Any = TypedDict("Person", types, total=False)  # type: ignore[misc]
    person.__doc__ = "What is known of a person; everything may be missing or null."
    return pydantic.with_config(ConfigDict(strict=True, extra="forbid"))(person)


def _value_type(about: PersonField) -> Any:
    """Return the type of a field's values."""
    text = Annotated[str, Field(pattern=DECIMAL)]
    vector = Annotated[list[Number], Field(min_length=about.length, max_length=about.length)]
    empty = Annotated[list[Any], Field(max_length=0)] | Literal[""]
    types: dict[str, Any] = {
        "number": Number | text | None,
        "date": Annotated[Plain, pydantic.AfterValidator(_check_date)],
        "multi-label": Plain | list[Plain],
        "vector": vector | empty | None,
    }
    return Annotated[types.get(about.kind, Plain), Field(description=about.expected)]


def _check_date(value: Any) -> Any:
    as_days(value)
    return value


def _field_types(model: Recommender, person: Any, limits: Limits) -> dict[str, Any]:
    """Return the types of the fields of requests.

    What `where`, `fields`, `score` and `popularity` may be is checked by the library, which has
    more to say.
    """
    columns = item_columns(model)
    shown = {"items": {"enum": [*columns]}} if columns else {"maxItems": 0}
    scores = ["real", "hamming"] if model.has_codes else ["real"]
    share = {"type": "number", "minimum": int(model.items.levels is None), "maximum": 1}

    def count(most: int) -> Any:
        return Annotated[int, Field(ge=1, le=most), BeforeValidator(_whole)]

    def rows(schema: Schema) -> Any:
        """Return the type of a list in which what is wrong is an error of its row."""
        row = Annotated[Any, WithJsonSchema({"anyOf": [schema, {}]})]
        return Annotated[list[row], Field(max_length=limits.max_batch)]

    return {
        "user": person,
        "user_id": Id,
        "users": rows({"$ref": REF.format(model="Person")}),
        "user_ids": rows(ID),
        "item_id": Id,
        "k": count(limits.max_k),
        "n": count(limits.max_k),
        "limit": count(MAX_FOUND),
        "planes": count(MAX_PLANES),
        "kinds": list[QuestionKind],
        "exclude": list[Id],
        "candidates": list[Id],
        "where": Annotated[dict[str, Any], WithJsonSchema(_describe_where(columns))],
        "fields": Annotated[list[str], WithJsonSchema({"type": "array", **shown})],
        "score": Annotated[Score, WithJsonSchema({"type": "string", "enum": scores})],
        "exclude_seen": bool,
        "popularity": Annotated[float, Field(ge=0, le=1), WithJsonSchema(share)],
        "search": Annotated[str, Field(max_length=200)],
    }


def _describe_where(columns: Mapping[str, str | None]) -> Schema:
    """Describe what `where` takes: conditions on the columns that can be compared."""
    number: Schema = {"type": "number"}
    bounds = {"type": "object", "properties": dict.fromkeys(BOUNDS, number), "minProperties": 1}
    values: Schema = {"number": number, "boolean": {"type": "boolean"}}
    values["text"] = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    ways = {kind: [value, {"type": "array", "items": value}] for kind, value in values.items()}
    ways["number"].append(bounds | {"additionalProperties": False})
    properties = {name: {"anyOf": ways[kind]} for name, kind in columns.items() if kind is not None}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _request_type(types: Mapping[str, Any], name: str) -> type[BaseModel]:
    """Return the type of a request; one of the fields that name people must be there."""
    fields: dict[str, Any] = {}
    for field, default in REQUESTS[name].items():
        kind = types[field] | None if default is None else types[field]
        fields[field] = kind, Field(default, description=DESCRIPTIONS.get(field))
    people = [field for field in PEOPLE if field in fields]
    schema: Schema = {}
    if len(people) > 1:
        schema["anyOf"] = [
            {"required": [field], "properties": {field: {"not": NULL}}} for field in people
        ]
    config = ConfigDict(strict=True, extra="forbid", json_schema_extra=schema)
    request: type[BaseModel] = pydantic.create_model(name, __config__=config, **fields)
    return request


def subject(request: Request) -> str | None:
    """Return the field of a request that an error of the library is about."""
    return next((name for name in SUBJECTS if request.get(name) is not None), None)


def parse_query(query: Mapping[str, str]) -> Request:
    """Return the parameters in the address of a request: names, texts, or JSON."""
    found: Request = {}
    for name, text in query.items():
        found[name] = text
        if name == "fields":
            found[name] = [field for field in text.split(",") if field]
        elif name not in TEXTS:
            with contextlib.suppress(orjson.JSONDecodeError):
                found[name] = orjson.loads(text)
    return found


def field_error(field: str, message: str, hint: str) -> RequestError:
    """Return the error of a field with a wrong value."""
    return RequestError(422, message, field=field, hint=hint)


class ErrorDetail(BaseModel):
    """What is wrong, where, and how to correct it."""

    field: str | None
    message: str
    hint: str | None


class ErrorAnswer(BaseModel):
    """Every answer that is not a success."""

    error: ErrorDetail


class Status(BaseModel):
    """The state of the service."""

    status: Literal["ok", "ready"]


class Item(BaseModel):
    """An item of the catalogue, with the fields that were asked for."""

    item_id: str
    title: str | None


class RankedItem(Item):
    """An item of an answer; a higher score is better."""

    rank: int
    score: float
    distance: int | None = Field(None, description="Bits that differ; only for score=hamming.")


class _Answer(BaseModel):
    model: str = Field(description="The version: from one answer, always one model.")


class ItemsAnswer(_Answer):
    """Items that a search found."""

    items: list[Item]


class SimilarAnswer(_Answer):
    """The most similar items, best first."""

    items: list[RankedItem]


class _PersonAnswer(_Answer):
    weights: dict[str, float] = Field(description="The share of each group; 0: it is missing.")
    fallback: bool = Field(description="Nothing usable was known: these are the popular items.")
    ignored: list[str] = Field(description="Rated items that the model does not know.")


class ExplainAnswer(_PersonAnswer, Item):
    """What contributed to the score of an item: contributions add up to it."""

    score: float
    contributions: dict[str, float]
    why: str


class AskedQuestion(BaseModel):
    """Something to ask: the answer goes into `answers` of the person, or into the field."""

    kind: Literal["item", "field"]
    name: str = Field(description="The item id, or the field.")
    title: str | None
    gain: float = Field(description="The share of what is open that the answer may settle.")
    known: float | None = Field(description="The share of people who know the item.")
    why: str


class AskAnswer(_Answer):
    """What to ask next, the best question first."""

    questions: list[AskedQuestion]


class PersonCode(_PersonAnswer):
    """The code of a person: bit b of the code is bit b % 8 of byte b // 8."""

    code: str | None = Field(description="Hexadecimal; null where a method has no codes.")
    n_bits: int | None


class RecommendAnswer(PersonCode):
    """The best items, best first."""

    items: list[RankedItem]
    user_id: str | None = Field(None, description="As in the request, if it was there.")


class RowError(ErrorDetail):
    """What is wrong with one person of a batch."""

    index: int = Field(description="The place of the person in the request, from 0.")


class BatchAnswer(_Answer):
    """One answer for each person, in the order of the request; null for one with an error."""

    answers: list[RecommendAnswer | None]
    errors: list[RowError]


class PlanesAnswer(BaseModel):
    """A vector as bit planes: h·d ≈ scale (offset - 2 Σ_j 2^j bit_count(d xor bits_j))."""

    bits: list[str] = Field(description="The planes, the lowest first, in the form of `code`.")
    scale: float
    offset: int


class EncodeAnswer(PersonCode):
    """A person as a vector and as a code."""

    vector: list[float]
    planes: PlanesAnswer | None = Field(None, description="If they were asked for.")


class ItemField(BaseModel):
    """A column of the item table, and how `where` compares it; null: not at all."""

    name: str
    kind: Kind | None


class ModelCard(BaseModel):
    """The model, and the fields of a person that it uses."""

    model: str
    coldhash: str = Field(description="The version of the package that serves it.")
    date: str | None = Field(description="Of the model file, in UTC; null without a file.")
    n_ratings: int = Field(description="Of the training users.")
    feedback: str = Field(description="What the training data were: ratings, counts or events.")
    method: str
    n_bits: int | None
    n_items: int
    n_users: int
    scale: list[float]
    scores: list[str]
    groups: list[str]
    fields: list[PersonField]
    takes_history: bool
    takes_answers: bool = Field(description="Whether there are questions to ask: `/v1/ask`.")
    has_level: bool = Field(description="Whether `popularity` may be less than 1.")
    labels: dict[str, dict[str, str]] = Field(description="What values of columns are called.")
    shown_fields: list[str] = Field(description="Columns of items that the page shows.")
    image_field: str | None = Field(description="A column of addresses of images.")
    judged: dict[str, Any] | None = Field(description="Held-out users, by `coldhash fit --judge`.")
    item_fields: list[ItemField]
