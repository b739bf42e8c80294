"""Study: which settings of a model to tune, within what, and judged on what.

In TOML:

    model = "dcmf"
    datasets = ["ml-1m", "book-crossing"]
    settings = {n_bits = 32}     # fixed
    trials = 20
    folds = 2

    [space]
    content_weight = {low = 0.1, high = 1000.0, log = true}
    n_rounds = {low = 5, high = 30}               # whole numbers, as both ends are
    map_to = {choices = ["factors", "codes"]}
    stranger_weight = {low = 0.1, high = 0.9, start = 0.6}

The first trial is the model's present default. Where that cannot lie within the space, because it
is None and stands for a value found in fitting, `start` says what to begin with.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    NonNegativeInt,
    PositiveInt,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    Tag,
    ValidationError,
    model_validator,
)

from coldhash.data.plan import read_toml, validation_error
from coldhash.lab.printed import METHODS
from coldhash.recommender.settings import settings_from
from coldhash.registry import Model

Number = StrictInt | StrictFloat
Value = StrictBool | StrictInt | StrictFloat | StrictStr


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Range(_Part):
    """Numbers from `low` to `high`, both included; whole ones if both ends are whole.

    Examples
    --------
    >>> Range(low=1, high=8).whole, Range(low=0.1, high=10.0, log=True).holds(0.05)
    (True, False)
    """

    low: Number
    high: Number
    log: bool = False
    start: Number | None = None

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def holds(self, value: Any) -> bool:
        """Whether a value lies within."""
        kinds = int if self.whole else (int, float)
        number = isinstance(value, kinds) and not isinstance(value, bool)
        return number and bool(self.low <= value <= self.high)

    @model_validator(mode="after")
    def _check(self) -> Range:
        if not self.low < self.high:
            raise ValueError(f"low={self.low} is not below high={self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"log = true needs low above 0, not {self.low}")
        return self


class Choices(_Part):
    """One of some values.

    Examples
    --------
    >>> Choices(choices=["factors", "codes"]).holds("codes")
    True
    """

    choices: Annotated[tuple[Value, ...], Field(min_length=2)]
    start: Value | None = None

    def holds(self, value: Any) -> bool:
        """Whether a value is among them; True is not 1."""
        return any(value == each and type(value) is type(each) for each in self.choices)


def _kind(value: Any) -> str:
    named = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    return "choices" if "choices" in named else "range"


Within = Annotated[
    Annotated[Range, Tag("range")] | Annotated[Choices, Tag("choices")], Discriminator(_kind)
]


class Study(_Part):
    """What to tune; see the module for how to write one.

    Examples
    --------
    >>> space = {"ridge": Range(low=1.0, high=1000.0)}
    >>> Study(model="ridge", datasets=["sample"], space=space).start
    {'ridge': 400.0}
    """

    model: str
    datasets: Annotated[tuple[str, ...], Field(min_length=1)]
    settings: dict[str, Any] = {}
    trials: PositiveInt = 20
    folds: PositiveInt = 2
    score: Literal["real", "hamming"] = "real"
    k: PositiveInt = 10
    seed: NonNegativeInt = 0
    space: Annotated[dict[str, Within], Field(min_length=1)]

    def __init__(self, **parts: Any) -> None:
        try:
            super().__init__(**parts)
        except ValidationError as error:
            raise validation_error("study", error) from None

    @classmethod
    def from_toml(cls, path: str | Path) -> Study:
        """Read a study from a TOML file."""
        return read_toml(cls, path)

    def replaced(self, **parts: Any) -> Study:
        """Give the study with some parts changed, checked again."""
        return Study(**(self.model_dump() | parts))

    def model_with(self, tuned: dict[str, Any]) -> Model:
        """Make the model; what is neither tuned nor fixed is as the model has it."""
        return settings_from(METHODS[self.model], self.settings | tuned)

    @property
    def start(self) -> dict[str, Any]:
        """The first trial: the model's defaults, of the settings that are tuned."""
        model = self.model_with({})
        return {
            name: getattr(model, name) if within.start is None else within.start
            for name, within in self.space.items()
        }

    @model_validator(mode="after")
    def _check(self) -> Study:
        _known(self.model, METHODS, "no method is called")
        names = {each.name for each in fields(METHODS[self.model])}  # type: ignore[arg-type]
        for name in (*self.settings, *self.space):
            _known(name, names, f"{self.model} has no setting")
        if both := sorted(set(self.settings) & set(self.space)):
            raise ValueError(f"{both[0]} is both fixed in settings and tuned in space")
        for name, value in self.start.items():
            if not self.space[name].holds(value):
                raise ValueError(f"space.{name} does not hold the default {value!r}: widen it, "
                                 "or say what to begin with by start = ...")  # fmt: skip
        return self


def _known(name: str, names: Any, problem: str) -> None:
    if name not in names:
        raise ValueError(f"{problem} {name!r}, but there are {', '.join(sorted(names))}")
