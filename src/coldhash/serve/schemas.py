"""What requests must look like, and what answers do look like.

`openapi` adds what depends on the limits of the server and on the model. Answers are written
without going through these types: they are here for the OpenAPI document, and a test holds the
answers against it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    WithJsonSchema,
)


def spelled(value: Any) -> str:
    """Return an id as a text."""
    whole = _whole(value)
    if isinstance(whole, int) and not isinstance(whole, bool) and -(2**63) < whole < 2**63:
        return str(whole)
    if isinstance(value, str) and value:
        return value
    raise ValueError("an id is a text that is not empty, or a whole number of 64 bits")


def _whole(value: Any) -> Any:
    """Return a whole number as an int: in JSON, 1.0 is 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# one type, not a union of two: an error then names the field alone
ID: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "integer", "minimum": 1 - 2**63, "maximum": 2**63 - 1},
    ]
}
Id = Annotated[str, BeforeValidator(spelled), WithJsonSchema(ID)]
HowMany = Annotated[StrictInt, Field(ge=1, description="How many items."), BeforeValidator(_whole)]
Person = dict[str, Any]


class _Ask(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Options(_Ask):
    k: HowMany = 10
    exclude: list[Id] | None = Field(None, description="Items not to recommend.")
    candidates: list[Id] | None = Field(None, description="The only items to recommend.")
    score: Literal["real", "hamming"] = "real"
    exclude_seen: StrictBool = Field(True, description="Leave out what the user has rated.")


class Ask(_Options):
    """For whom to recommend: a stranger (`user`) or somebody from the training data (`user_id`)."""

    user: Person | None = None
    user_id: Id | None = None


class AskMany(_Options):
    """For whom to recommend: strangers, or users from the training data."""

    users: list[Person] | None = None
    user_ids: list[Id] | None = None


class AskCode(_Ask):
    """Whom to encode."""

    user: Person


class AskWhy(_Ask):
    """Whom and which item to explain."""

    user: Person
    item_id: Id


class Problem(BaseModel):
    """What is wrong, where, and the way out."""

    field: str | None
    message: str
    hint: str | None


class Error(BaseModel):
    """Every answer that is not a success."""

    error: Problem


class Item(BaseModel):
    """An item, to show."""

    item_id: str
    title: str | None


class Ranked(Item):
    """An item of an answer; a higher score is better."""

    rank: int
    score: float
    distance: int | None = Field(None, description="Bits that differ; only for score=hamming.")


class Code(BaseModel):
    """A person in short: bit b of the code is bit b % 8 of byte b // 8."""

    code: str | None = Field(description="Hexadecimal; null where a method has no codes.")
    n_bits: int | None
    weights: dict[str, float] = Field(description="The share of each group; 0: it is missing.")
    fallback: bool = Field(description="Nothing usable was known: these are the popular items.")
    ignored: list[str] = Field(description="Items of the history that the model does not know.")
    model: str = Field(description="The version: from one answer, always one model.")


class Answer(Code):
    """The best items, best first."""

    items: list[Ranked]
    user_id: str | None = Field(None, description="As it was asked, if it was.")


class Answers(BaseModel):
    """One answer for each person, in the order of the request."""

    answers: list[Answer]
    model: str


class Encoding(Code):
    """A person as a vector and as a code."""

    vector: list[float]


class Why(BaseModel):
    """What carried an item: contributions add up to the score."""

    item_id: str
    title: str | None
    score: float
    contributions: dict[str, float]
    weights: dict[str, float]
    fallback: bool
    ignored: list[str]
    why: str
    model: str


class Found(BaseModel):
    """Items that a search found."""

    items: list[Item]
    model: str


class Similar(BaseModel):
    """The items most like one, best first."""

    items: list[Ranked]
    model: str


class FormField(BaseModel):
    """One thing to know of a person."""

    name: str
    kind: Literal["category", "multi-label", "number", "text", "vector"]
    group: str
    choices: list[str]
    min: float | None
    max: float | None
    length: int | None


class Card(BaseModel):
    """What the model is, and what it wants to know of people."""

    model: str
    method: str
    n_bits: int | None
    n_items: int
    n_users: int
    scale: list[float]
    scores: list[str]
    groups: list[str]
    fields: list[FormField]
    takes_history: bool


class State(BaseModel):
    """How the service is."""

    status: Literal["ok", "ready"]
