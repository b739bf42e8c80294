"""Requests, their limits and answers, and the fields of a person.

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
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveFloat, PositiveInt
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

from coldhash.data import as_days
from coldhash.errors import ColdhashError, UnknownId, check_types
from coldhash.features.columns import Ages, FittedColumn, Given, Knots, Labels
from coldhash.features.groups import FeatureEncoder
from coldhash.features.people import ANSWERS, HISTORY
from coldhash.recommender.encoders import Question, QuestionKind
from coldhash.recommender.export import MAX_PLANES
from coldhash.recommender.recommender import USER_ID, Recommender, Score
from coldhash.recommender.where import BOUNDS, Kind, kind_of

JSON = "application/json"
HINT = "see /openapi.json"
ERROR_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}
MAX_CHOICES = 200
LARGEST = float(np.finfo(np.float32).max)
DECIMAL = "^[ \\t\\r\\n]*([+-]?[0-9]{1,30}([.][0-9]{0,30})?)?[ \\t\\r\\n]*$"  # or an empty text
REF = "#/components/schemas/{model}"
RATED, LISTED = "[rated]", "[listed]"  # the two forms of a history
NO_FIELDS = ("", "[key]", RATED, LISTED)  # in the place of an error
PEOPLE = ("user_ids", "user_id", "users", "user")  # fields that name people
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
    "too_long": ("more entries than this server allows", "at most {max_length}"),
}

Person = dict[str, Any]
Request = dict[str, Any]  # fields and values
Schema = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a request; the answer to a request beyond them names the limit.

    Parameters
    ----------
    max_body
        Bytes of the body.
    max_k
        Items of an answer.
    max_batch_items
        People x k of a batch.
    max_history
        Ratings of one person.
    max_waiting
        Requests that wait for a thread.
    timeout
        Seconds, from the head of the request to the last byte of the answer.

    Raises
    ------
    SettingError
        A limit is not a positive number.

    Examples
    --------
    >>> Limits(max_k=50, timeout=5.0).max_k
    50
    """

    max_body: PositiveInt = 1_000_000
    max_k: PositiveInt = 1000
    max_batch_items: PositiveInt = 20_000
    max_history: PositiveInt = 1000
    max_waiting: PositiveInt = 256
    timeout: PositiveFloat = 30.0

    def __post_init__(self) -> None:
        check_types(self)


class RequestError(HTTPException):
    """An error of a request: the status, the message, the field that is wrong and a hint."""

    def __init__(
        self, status: int, message: str, *, field: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(status, message, ERROR_HEADERS.get(status))
        self.field, self.hint = field, hint


def error_body(error: HTTPException) -> bytes:
    """Return what an answer says of an error; those of Starlette name no field."""
    field, hint = getattr(error, "field", None), getattr(error, "hint", HINT)
    return orjson.dumps({"error": {"field": field, "message": error.detail, "hint": hint}})


def library_error(error: ColdhashError, field: str | None) -> RequestError:
    """Return an error of the library as that of a request, about a field."""
    status = 404 if isinstance(error, UnknownId) else 422
    return RequestError(status, error.message, field=error.argument or field, hint=error.hint)


def field_error(field: str, message: str, hint: str) -> RequestError:
    """Return the error of a field with a wrong value."""
    return RequestError(422, message, field=field, hint=hint)


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
Id = Annotated[str, BeforeValidator(id_text), pydantic.WithJsonSchema(ID)]
ItemId = Annotated[str, Field(min_length=1)]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Plain = str | bool | int | float | None  # without the int, 1 would become 1.0


@dataclass(frozen=True)
class PersonField:
    """A field of a person that the model uses; values beyond `min` and `max` count as these."""

    name: str
    kind: Literal["category", "date", "multi-label", "number", "text", "vector"]
    group: str
    choices: tuple[str, ...] = ()  # the most common first
    min: float | None = None
    max: float | None = None
    length: int | None = None  # of a vector

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
        self._users, self._user_ids = (pydantic.TypeAdapter[Any](kind) for kind in (person, Id))
        # each by its name, made when it is first used
        self.request = cache(partial(_request_type, _field_types(model, person, limits)))

    def read(self, name: str, values: object) -> Request:
        """Return the fields of a request, with their defaults; ids are texts."""
        found: Request = vars(self._check(self.request(name).model_validate, values))
        people = [field for field in PEOPLE if field in found]
        if len(people) > 1 and subject(found) is None:
            raise field_error(people[-1], "nobody is named", f"{', '.join(people)}, or both")
        return found

    def read_row(self, request: Request, row: int) -> Request:
        """Return one of `users` and of `user_ids` of a batch; ids are texts."""
        kinds = {"users": self._users, "user_ids": self._user_ids}
        return {
            name: self._check(kind.validate_python, request[name][row], f"{name}.{row}")
            for name, kind in kinds.items()
            if request[name] is not None
        }

    def _check(self, validate: Callable[[object], Any], value: object, place: str = "") -> Any:
        try:
            return validate(value)
        except pydantic.ValidationError as error:
            raise self._first_error(error, place) from None

    def _first_error(self, error: pydantic.ValidationError, place: str) -> RequestError:
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
    types: dict[str, Any] = {USER_ID: Id | None, HISTORY: history | None}
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
        row = Annotated[Any, pydantic.WithJsonSchema({"anyOf": [schema, {}]})]
        return Annotated[list[row], Field(max_length=limits.max_batch_items)]

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
        "where": Annotated[dict[str, Any], pydantic.WithJsonSchema(_describe_where(columns))],
        "fields": Annotated[list[str], pydantic.WithJsonSchema({"type": "array", **shown})],
        "score": Annotated[Score, pydantic.WithJsonSchema({"type": "string", "enum": scores})],
        "exclude_seen": bool,
        "popularity": Annotated[float, Field(ge=0, le=1), pydantic.WithJsonSchema(share)],
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
    given = {"not": {"type": "null"}}
    named = [{"required": [who], "properties": {who: given}} for who in PEOPLE if who in fields]
    schema: Schema = {"anyOf": named} if len(named) > 1 else {}
    config = ConfigDict(strict=True, extra="forbid", json_schema_extra=schema)
    request: type[BaseModel] = pydantic.create_model(name, __config__=config, **fields)
    return request


def subject(request: Request) -> str | None:
    """Return the field of a request that an error of the library is about."""
    return next((name for name in (*PEOPLE, "item_id") if request.get(name) is not None), None)


def parse_query(query: Mapping[str, str]) -> Request:
    """Return the parameters in the address of a request: names, texts, or JSON."""
    found: Request = dict(query)
    for name, text in query.items():
        if name == "fields":
            found[name] = [field for field in text.split(",") if field]
        elif name not in TEXTS:
            with contextlib.suppress(orjson.JSONDecodeError):
                found[name] = orjson.loads(text)
    return found


class ErrorDetail(BaseModel):
    """What is wrong, where, and how to correct it."""

    field: str | None
    message: str
    hint: str | None


class ErrorAnswer(BaseModel):
    """Every answer that is not a success."""

    error: ErrorDetail


class Item(BaseModel):
    """An item, with the fields that were asked for; a higher score is better."""

    item_id: str
    title: str | None
    rank: int | None = None
    score: float | None = Field(None, description="Null in the answer to a search.")
    distance: int | None = Field(None, description="Bits that differ; only for score=hamming.")


class _Answer(BaseModel):
    model: str = Field(description="The version: from one answer, always one model.")


class ItemsAnswer(_Answer):
    """Items, best first."""

    items: list[Item]


class _EncodedPerson(_Answer):
    """What is known of a person, and the code: bit b of it is bit b % 8 of byte b // 8."""

    weights: dict[str, float] = Field(description="The share of each group; 0: it is missing.")
    fallback: bool = Field(description="Nothing usable was known: these are the popular items.")
    ignored: list[str] = Field(description="Rated items that the model does not know.")
    code: str | None = Field(None, description="Hexadecimal; null where a method has no codes.")
    n_bits: int | None = None


class ExplainAnswer(_EncodedPerson, Item):
    """What contributed to the score of an item: contributions add up to it."""

    contributions: dict[str, float]


class AskAnswer(_Answer):
    """What to ask next, the best question first."""

    questions: list[Question]


class RecommendAnswer(_EncodedPerson, ItemsAnswer):
    """The best items, best first."""

    user_id: str | None = Field(None, description="As in the request, if it was there.")


class BatchAnswer(_Answer):
    """For each person, in the order of the request, an answer, or what is wrong with that one."""

    answers: list[RecommendAnswer | ErrorAnswer]


class PlanesAnswer(BaseModel):
    """A vector as bit planes: h·d ≈ scale (offset - 2 Σ_j 2^j bit_count(d xor bits_j))."""

    bits: list[str] = Field(description="The planes, the lowest first, in the form of `code`.")
    scale: float
    offset: int


class EncodeAnswer(_EncodedPerson):
    """A person as a vector and as a code."""

    vector: list[float]
    planes: PlanesAnswer | None = Field(None, description="If they were asked for.")
