"""Requests and answers of the API, and the fields of a person.

A request is validated by the type that describes it in the OpenAPI document; so is a person.
`LIMITED` names what has a limit of the server. Answers are not built from these types, which
describe them in the document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic.functional_validators import AfterValidator
from pydantic.json_schema import WithJsonSchema
from pydantic.types import Discriminator, Tag
from starlette.datastructures import QueryParams

from coldhash.data.dates import as_days
from coldhash.features.columns import Ages, FittedColumn, Given, Knots, Labels
from coldhash.features.groups import FeatureEncoder
from coldhash.features.people import ANSWERS, HISTORY
from coldhash.recommender.ask import ITEMS_AND_FIELDS, QuestionKind
from coldhash.recommender.planes import MAX_PLANES
from coldhash.recommender.recommender import USER_ID, Score
from coldhash.recommender.where import Kind
from coldhash.serve.limits import HINT, Limits, RequestError

MAX_CHOICES = 200
LARGEST = float(np.finfo(np.float32).max)
DECIMAL = "^[ \\t\\r\\n]*([+-]?[0-9]{1,30}([.][0-9]{0,30})?)?[ \\t\\r\\n]*$"  # or an empty text
SHORT_NUMBER = re.compile("[0-9]{1,9}")
REF = "#/components/schemas/{model}"
NULL = {"type": "null"}
RATED, LISTED = "[rated]", "[listed]"  # the two forms of a history
NO_FIELDS = ("", "[key]", RATED, LISTED)  # in the place of an error
LIMITED = {
    "k": "max_k",
    "n": "max_k",
    "users": "max_batch",
    "user_ids": "max_batch",
}  # fields of requests


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
ID: dict[str, Any] = {"anyOf": [{"type": "string", "minLength": 1}, INT64]}
Id = Annotated[str, BeforeValidator(id_text), WithJsonSchema(ID)]
Name = Annotated[
    str | None,
    BeforeValidator(lambda value: None if value in (None, "") else id_text(value)),
    WithJsonSchema({"anyOf": [ID, {"const": ""}, NULL]}),
]
Count = Annotated[int, Field(ge=1, strict=True), BeforeValidator(_whole)]
PlaneCount = Annotated[int, Field(ge=1, le=MAX_PLANES, strict=True), BeforeValidator(_whole)]
Share = Annotated[float, Field(ge=0, le=1, strict=True)]
# what is in it depends on the model: see `person_type`
PERSON = {"$ref": REF.format(model="Person")}
Person = Annotated[dict[str, Any], WithJsonSchema({"allOf": [PERSON]})]
# of a batch: what is wrong is an error of its row, not of the request
PersonRow = Annotated[Any, WithJsonSchema({"anyOf": [PERSON, {}]})]
IdRow = Annotated[Any, WithJsonSchema({"anyOf": [ID, {}]})]

POPULARITY = "How much it counts what everybody likes; less than 1 only for a model with a level."
FIELDS = "Columns of the item table to show beside the title."
WHERE = "Columns of the item table: a value, a list of which any matches, or a range of numbers."


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")
    field: ClassVar[str] = "user"  # that an error of the library is about


class RecommendOptions(_Request):
    """The options of `Recommender.recommend`, by the same names."""

    k: Count = Field(10, description="How many items.")
    exclude: list[Id] | None = Field(None, description="Items not to recommend.")
    candidates: list[Id] | None = Field(None, description="The only items to recommend.")
    where: dict[str, Any] | None = Field(None, description=WHERE)
    score: Score = "real"
    exclude_seen: bool = Field(True, strict=True, description="Leave out what was rated.")
    popularity: Share = Field(1.0, description=POPULARITY)
    fields: list[str] | None = Field(None, description=FIELDS)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `Recommender.recommend`."""
        values = vars(self)
        return {name: values[name] for name in OPTIONS}


OPTIONS = tuple(RecommendOptions.model_fields)


def _describe_choice(schema: dict[str, Any], request: type[PeopleRequest]) -> None:
    """Describe that at least one of the fields of people is given."""
    schema["anyOf"] = [
        {"required": [name], "properties": {name: {"not": NULL}}} for name in request.people_fields
    ]


class PeopleRequest(RecommendOptions):
    """People, and options."""

    model_config = ConfigDict(json_schema_extra=_describe_choice)
    people_fields: ClassVar[tuple[str, str]]  # of strangers, of users of the training data

    @property
    def field(self) -> str:  # type: ignore[override]
        """The field of people that is given, of two that of users."""
        strangers, users = self.people_fields
        return strangers if getattr(self, users) is None else users

    def require_people(self) -> None:
        """Raise a request error if nobody is named."""
        if getattr(self, self.field) is None:
            strangers, users = self.people_fields
            raise field_error(strangers, "nobody is named", f"{strangers}, {users}, or both")


class RecommendRequest(PeopleRequest):
    """A stranger (`user`), a user of the training data (`user_id`), or both.

    Of both, `user` describes the person where the model does not know `user_id`.
    """

    people_fields = ("user", "user_id")
    user: Person | None = None
    user_id: Id | None = None


class BatchRequest(PeopleRequest):
    """Strangers, users of the training data, or both, of the same number."""

    people_fields = ("users", "user_ids")
    users: list[PersonRow] | None = None
    user_ids: list[IdRow] | None = None

    @property
    def n_people(self) -> int:
        """The number of people; a request error if there are two, or none."""
        self.require_people()
        given = [people for people in (self.users, self.user_ids) if people is not None]
        if len({len(people) for people in given}) > 1:
            message = f"{len(given[1])} user_ids for {len(given[0])} users"
            raise RequestError(400, message, field="user_ids", hint="one for each of users")
        return len(getattr(self, self.field))


class EncodeRequest(_Request):
    """A person to encode."""

    user: Person
    planes: PlaneCount | None = Field(
        None, description="How many bit planes to round the vector to, for SQL."
    )
    popularity: Share = Field(1.0, description=POPULARITY)


class ExplainRequest(_Request):
    """A person, and an item to explain."""

    user: Person
    item_id: Id
    popularity: Share = Field(1.0, description=POPULARITY)


class AskRequest(_Request):
    """A person to ask something; the options of `Recommender.ask`, by the same names."""

    user: Person = Field(default_factory=dict)
    n: Count = Field(1, description="How many questions.")
    kinds: list[QuestionKind] = Field(list(ITEMS_AND_FIELDS), description="What to ask about.")
    exclude: list[Id] = Field([], description="Items not to ask about.")
    candidates: list[Id] | None = Field(None, description="The only items to ask about.")
    where: dict[str, Any] | None = Field(None, description=WHERE)


Names = Annotated[
    list[str],
    BeforeValidator(lambda text: [name for name in text.split(",") if name]),
    WithJsonSchema({"type": "array", "items": {"type": "string"}}),
]


def _parse_where(text: str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise ValueError("not JSON") from None


class ItemsQuery(BaseModel):
    """A search in the catalogue."""

    model_config = ConfigDict(extra="forbid")
    fields: Names = Field([], description=FIELDS)
    search: str = Field("", max_length=200, description="Part of title or id.")
    limit: int = Field(20, ge=1, le=100, description="How many items.")


class SimilarQuery(BaseModel):
    """An item of which similar ones are wanted."""

    model_config = ConfigDict(extra="forbid")
    field: ClassVar[str] = "item_id"
    fields: Names = Field([], description=FIELDS)
    where: Annotated[dict[str, Any] | None, BeforeValidator(_parse_where)] = Field(
        None, description=f"{WHERE} As JSON."
    )
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
    ignored: list[str] = Field(description="Items of the history that the model does not know.")


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
    """A vector as bit planes: h·d ≈ scale (offset - 2 Σ_j 2^j bit_count(d xor bits_j)).

    The score is gain^gain_power (base_weight base + h·d).
    """

    bits: list[str] = Field(description="The planes, the lowest first, in the form of `code`.")
    scale: float
    offset: int
    base_weight: float
    gain_power: float


class EncodeAnswer(PersonCode):
    """A person as a vector and as a code."""

    vector: list[float]
    planes: PlanesAnswer | None = Field(None, description="If they were asked for.")


class PersonField(BaseModel):
    """A field of a person that the model uses; values beyond `min` and `max` count as these."""

    name: str
    kind: Literal["category", "date", "multi-label", "number", "text", "vector"]
    group: str
    choices: list[str] = Field([], description="Known values, the most common first.")
    min: float | None = None
    max: float | None = None
    length: int | None = Field(None, description="Of a vector.")


class Figure(BaseModel):
    """An Accuracy@k and its 95% interval."""

    mean: float
    low: float
    high: float


class JudgedRow(BaseModel):
    """How the settings of the model did after a number of ratings, and how popularity did."""

    given: int
    model: Figure
    popularity: Figure
    verdict: Literal["ahead", "tied", "behind"]


class Judged(BaseModel):
    """What `coldhash fit --judge` found for users that were held out."""

    users: int
    k: int
    rows: list[JudgedRow]


class ItemField(BaseModel):
    """A column of the item table, and how `where` compares it; null: not at all."""

    name: str
    kind: Kind | None


class ModelCard(BaseModel):
    """The model, and the fields of a person that it uses."""

    model: str
    coldhash: str = Field(description="The version of the package that serves it.")
    date: str | None = Field(description="Of the model file, in UTC; null without a file.")
    n_ratings: int | None = Field(description="Of the training users, where the model has them.")
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
    judged: Judged | None = Field(description="How held-out users did, if the file says so.")
    item_fields: list[ItemField]


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
    if isinstance(column, Ages):
        return {"kind": "date"}
    if isinstance(column, Knots):
        return {"kind": "number", "min": column.knots[0], "max": column.knots[-1]}
    if isinstance(column, Given):
        return {"kind": "vector", "length": column.width}
    return {"kind": "text"}


Scale = tuple[float, float]  # the lowest and the highest rating
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Plain = str | bool | float | None


def _check_date(value: Plain) -> Plain:
    as_days(value)
    return value


def _describe_values(field: PersonField) -> tuple[Any, str]:
    """Return the type of a field's values, and its name."""
    text = Annotated[str, Field(pattern=DECIMAL)]
    vector = Annotated[list[Number], Field(min_length=field.length, max_length=field.length)]
    empty = Annotated[list[Any], Field(max_length=0)] | Literal[""]
    types: dict[str, tuple[Any, str]] = {
        "number": (Number | text | None, "a number"),
        "date": (Annotated[Plain, AfterValidator(_check_date)], "a date such as 2024-01-31"),
        "multi-label": (Plain | list[Plain], "a text or a list of texts"),
        "vector": (vector | empty | None, f"a list of {field.length} numbers"),
    }
    return types.get(field.kind, (Plain, "one value"))


def person_type(
    fields: Mapping[str, PersonField], scale: Scale, takes_answers: bool, max_history: int
) -> type[BaseModel]:
    """Return the type of a person: to validate one, and to describe it.

    A value that the model has never seen is no error: it counts as unknown. A field that the model
    has never seen is one, because it is usually a typing error.
    """
    item_id = Annotated[str, Field(min_length=1)]
    rating = Annotated[float, Field(ge=scale[0], le=scale[1])]
    rated = Field(max_length=max_history, description="Item id -> rating.")
    listed = Field(max_length=max_history, description="Ids of items without ratings.")
    history = Annotated[
        Annotated[dict[item_id, rating], rated, Tag(RATED)]
        | Annotated[list[Id], listed, Tag(LISTED)],
        Discriminator(lambda history: LISTED if isinstance(history, list) else RATED),
    ]
    asked = Field(None, max_length=max_history, description="Item id -> rating, null: unknown.")
    types: dict[str, Any] = {USER_ID: (Name, None), HISTORY: (history | None, None)}
    if takes_answers:
        types[ANSWERS] = (dict[item_id, rating | None] | None, asked)
    for place, (name, field) in enumerate(fields.items()):
        values, description = _describe_values(field)
        # a column may have any name, an attribute may not
        types[f"field_{place}"] = values, Field(None, alias=name, description=description)
    config = ConfigDict(strict=True, extra="forbid")
    about = "What is known of a person; everything may be missing or null."
    return create_model("Person", __config__=config, __doc__=about, **types)


def person_error(
    error: ValidationError, place: str, fields: Mapping[str, PersonField]
) -> RequestError:
    """Return the first of the errors of a person as that of a request."""
    first = error.errors()[0]
    if not first["loc"]:
        return field_error(place, "not a person", 'an object such as {"age": 25}')
    name = first["loc"][0]
    if first["type"] == "extra_forbidden":
        hint = f"one of {', '.join([*fields, HISTORY])}"
        return field_error(f"{place}.{name}", "the model has no such field", hint)
    if name not in fields:
        return first_error(error, place)
    expected = _describe_values(fields[str(name)])[1]
    hint = f"{expected}, or null where it is unknown"
    return field_error(f"{place}.{name}", f"not {expected}", hint)


def parse_query(query: bytes) -> dict[str, str | int]:
    """Return the parameters in the address of a request that has a body, too."""
    given = QueryParams(query).items()
    return {name: int(text) if SHORT_NUMBER.fullmatch(text) else text for name, text in given}


def check_limits(request: BaseModel, limits: Limits) -> None:
    """Raise a request error if a request is beyond a limit of the server."""
    values = vars(request)
    for name, limit in LIMITED.items():
        value, most = values.get(name), getattr(limits, limit)
        given = len(value) if isinstance(value, list) else value or 0
        if given > most:
            message = f"{given:,} is more than this server allows"
            raise field_error(name, message, f"at most {most:,}")


def check_id(value: object, row: int) -> str:
    """Return the id of a user of a batch as a text; a request error if it is none."""
    try:
        return id_text(value)
    except ValueError as error:
        raise field_error(f"user_ids.{row}", str(error), HINT) from None


def first_error(error: ValidationError, place: str = "", hint: str = HINT) -> RequestError:
    """Return the first of the errors of a validation as that of a request."""
    first = error.errors()[0]
    parts = [str(part) for part in (place, *first["loc"]) if part not in NO_FIELDS]
    message = first["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    if first["type"] == "extra_forbidden":
        message = "there is no such field"
    return field_error(".".join(parts) or "body", message, hint)


def field_error(field: str, message: str, hint: str) -> RequestError:
    """Return the error of a field with a wrong value."""
    return RequestError(422, message, field=field, hint=hint)
