"""Describe a tuning study, and the result of one.

In TOML:

    model = "dcmf"
    datasets = ["ml-1m", "book-crossing"]
    settings = {n_bits = 32}     # fixed
    trials = 20
    folds = 2

    [space]
    content_weight = {low = 0.1, high = 1000.0, log = true}
    n_rounds = {low = 5, high = 30}               # integers, as both ends are
    map_to = {choices = ["factors", "codes"]}
    stranger_weight = {low = 0.1, high = 0.9, start = 0.6}

The first trial uses the model's defaults. `start` replaces a default that is not in the space, such
as None for a value that is chosen during the fit.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    NonNegativeInt,
    PositiveInt,
    Tag,
    model_validator,
)

from coldhash.errors import SettingError, check_choice
from coldhash.files import replace_text
from coldhash.lab.experiment import TomlConfig
from coldhash.lab.printed import METHODS
from coldhash.lab.results import Row
from coldhash.lab.runner import stamp
from coldhash.recommender.settings import settings_from
from coldhash.registry import Model
from coldhash.render import write_rows

Number = int | float
Value = bool | int | float | str
AttemptState = Literal["complete", "pruned", "refused"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class Range(_Strict):
    """Numbers from `low` to `high`, both included; integers if both ends are integers.

    Parameters
    ----------
    low, high
        The ends.
    log
        Search on a logarithmic scale.
    start
        The value of the first trial; the model's default if None.

    Examples
    --------
    >>> Range(low=1, high=8).is_integer, Range(low=0.1, high=10.0, log=True).contains(0.05)
    (True, False)
    """

    low: Number
    high: Number
    log: bool = False
    start: Number | None = None

    @property
    def is_integer(self) -> bool:
        """Whether the range is of integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def contains(self, value: object) -> bool:
        """Check whether a value is in the range.

        Parameters
        ----------
        value
            The value of a setting.

        Returns
        -------
        bool
            False for other types, and for a float in a range of integers.
        """
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return self.low <= value <= self.high and not (self.is_integer and isinstance(value, float))

    @model_validator(mode="after")
    def _check(self) -> Range:
        if not self.low < self.high:
            raise ValueError(f"low={self.low} is not below high={self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"log = true needs low above 0, not {self.low}")
        return self


class Choices(_Strict):
    """One of several values.

    Parameters
    ----------
    choices
        The values, at least two.
    start
        The value of the first trial; the model's default if None.

    Examples
    --------
    >>> Choices(choices=["factors", "codes"]).contains("codes")
    True
    """

    choices: Annotated[list[Value], Field(min_length=2)]
    start: Value | None = None

    def contains(self, value: object) -> bool:
        """Check whether a value is one of the choices; True is not 1.

        Parameters
        ----------
        value
            The value of a setting.

        Returns
        -------
        bool
            True if a choice has the same type and value.
        """
        return any(value == each and type(value) is type(each) for each in self.choices)


def _kind(value: object) -> str:
    names = value if isinstance(value, dict) else vars(value)
    return "choices" if "choices" in names else "range"


Domain = Annotated[
    Annotated[Range, Tag("range")] | Annotated[Choices, Tag("choices")], Discriminator(_kind)
]


class Study(TomlConfig):
    """Which settings of a model to tune, in which space, and on what data.

    Parameters
    ----------
    model
        A key of `coldhash.registry.MODELS`, or "printed-mfdcf".
    datasets
        Names of data sets.
    settings
        Fixed settings.
    trials
        Number of trials.
    folds
        Number of folds of each data set.
    score
        "real", or "hamming" to compare codes with codes.
    k
        Tune by Accuracy@k.
    seed
        Seed of the split and of the search.
    space
        A `Range` or `Choices` for each setting to tune.

    Raises
    ------
    SettingError
        If a value is invalid.

    Examples
    --------
    >>> space = {"ridge": Range(low=1.0, high=1000.0)}
    >>> Study(model="ridge", datasets=["sample"], space=space).start
    {'ridge': 400.0}
    """

    model: str
    datasets: Annotated[tuple[str, ...], Field(min_length=1)]
    settings: dict[str, object] = Field(default_factory=dict)
    trials: PositiveInt = 20
    folds: PositiveInt = 2
    score: Literal["real", "hamming"] = "real"
    k: PositiveInt = 10
    seed: NonNegativeInt = 0
    space: Annotated[dict[str, Domain], Field(min_length=1)]

    def replace(self, **values: object) -> Study:
        """Return the study with some values changed, checked again.

        Parameters
        ----------
        **values
            New values of parameters of this class, by name.

        Returns
        -------
        Study

        Raises
        ------
        SettingError
            A value is invalid.
        """
        return Study(**(self.model_dump() | values))

    def make_model(self, tuned: dict[str, object]) -> Model:
        """Make the model from tuned, fixed and default settings.

        Parameters
        ----------
        tuned
            Settings by name; they replace fixed ones of the same name.

        Returns
        -------
        Model
            The model, not fitted.

        Raises
        ------
        SettingError
            A setting is unknown, or the model refuses its value.
        """
        return settings_from(METHODS[self.model], self.settings | tuned)

    @property
    def start(self) -> dict[str, object]:
        """The settings of the first trial."""
        model = self.make_model({})
        return {
            name: getattr(model, name) if domain.start is None else domain.start
            for name, domain in self.space.items()
        }

    @model_validator(mode="after")
    def _check(self) -> Study:
        check_choice("model", self.model, METHODS)
        known = vars(self.make_model({}))
        for name in self.space:
            check_choice("space", name, known)
            if name in self.settings:
                raise ValueError(f"{name} is both fixed in settings and tuned in space")
        for name, value in self.start.items():
            if not self.space[name].contains(value):
                raise ValueError(
                    f"space.{name} does not contain the default {value!r}: widen it, or set start"
                )
        return self


@dataclass(frozen=True)
class Attempt:
    """One trial of a study.

    Parameters
    ----------
    settings
        The tuned settings.
    state
        "complete", "pruned", or "refused" by the model.
    value
        Mean over folds of the accuracy divided by that of popularity.
    by_fold
        The values of the folds that were run.
    seconds
        Duration.
    is_default
        Whether these are the defaults.
    message
        Why the model refused the settings.

    Examples
    --------
    >>> Attempt({"ridge": 50.0}, "complete", value=1.2, by_fold=(1.1, 1.3), seconds=0.1).state
    'complete'
    """

    settings: dict[str, object]
    state: AttemptState
    value: float | None
    by_fold: tuple[float, ...]
    seconds: float
    is_default: bool = False
    message: str | None = None


@dataclass(frozen=True)
class FoldInfo:
    """The size of a fold, and the accuracy of popularity on it."""

    dataset: str
    fold: int
    n_train: int
    n_cold: int
    popularity: float


@dataclass(frozen=True)
class StudyResult:
    """The finished trials of a study.

    Parameters
    ----------
    study
        What was tuned.
    folds
        The folds, those of different data sets in turn.
    attempts
        The trials in order, at least one of them complete.
    fingerprints
        Of the data sets, by name.

    Examples
    --------
    >>> space = {"ridge": Range(low=1.0, high=1000.0)}
    >>> study = Study(model="ridge", datasets=["sample"], space=space)
    >>> tried = (
    ...     Attempt({"ridge": 400.0}, "complete", 1.1, (1.1,), seconds=0.1, is_default=True),
    ...     Attempt({"ridge": 50.0}, "complete", 1.2, (1.2,), seconds=0.1),
    ... )
    >>> StudyResult(study, (), tried).best.settings
    {'ridge': 50.0}
    """

    study: Study
    folds: tuple[FoldInfo, ...]
    attempts: tuple[Attempt, ...]
    fingerprints: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> list[Attempt]:
        """The complete trials."""
        return [each for each in self.attempts if each.state == "complete"]

    @property
    def best(self) -> Attempt:
        """The first complete trial of the highest value."""
        return max(self.complete, key=lambda each: each.value or 0.0)

    @property
    def default(self) -> Attempt | None:
        """The trial of the defaults, None if the model refused them."""
        return next((each for each in self.complete if each.is_default), None)

    @property
    def improvement(self) -> float | None:
        """The best value minus that of the defaults."""
        if self.default is None:
            return None
        return float(np.mean(self._differences(self.default)))

    @property
    def noise(self) -> float | None:
        """Standard deviation of the improvement over the folds of a data set; None for one fold."""
        if self.default is None or self.study.folds < 2:
            return None
        by_dataset = self._differences(self.default).reshape(self.study.folds, -1)
        return float(np.sqrt(np.var(by_dataset, axis=0, ddof=1).mean()))

    def _differences(self, default: Attempt) -> np.ndarray:
        return np.subtract(self.best.by_fold, default.by_fold)

    def to_dict(self) -> dict[str, object]:
        """Return all results as JSON values, with versions of packages and the kind of machine.

        Returns
        -------
        dict of str to object
            Keys study, data (fingerprints), defaults (of the model), versions, folds, best,
            default, improvement, noise and trials.
        """
        return {
            **self._identity(),
            "versions": stamp() | {"optuna": version("optuna")},
            "folds": [asdict(fold) for fold in self.folds],
            "best": {"settings": self.best.settings, "value": self.best.value},
            "default": self.default
            and {"settings": self.default.settings, "value": self.default.value},
            "improvement": self.improvement,
            "noise": self.noise,
            "trials": [asdict(attempt) for attempt in self.attempts],
        }

    def _identity(self) -> Row:
        """Return what determines the trials, as JSON values."""
        defaults = json.loads(json.dumps(vars(self.study.make_model({}))))
        study = self.study.model_dump(mode="json")
        return {"study": study, "data": self.fingerprints, "defaults": defaults}

    def resume(self, file: Path) -> StudyResult:
        """Return the result of an earlier run of this study.

        Parameters
        ----------
        file
            A report.

        Returns
        -------
        StudyResult
            With the trials of the report.

        Raises
        ------
        SettingError
            The report is of a different study; only `trials` may change.
        """
        report = json.loads(file.read_text(encoding="utf-8"))
        old, new = (
            {**each["study"], "data": each["data"], "defaults": each["defaults"], "trials": None}
            for each in (report, self._identity())
        )
        changed = [name for name in new if new[name] != old.get(name)]
        if changed:
            raise SettingError(
                f"{file} was made by a different study: {', '.join(changed)} changed",
                hint="only `trials` may change; choose another --out, or delete the file",
            )
        trials = (each | {"by_fold": tuple(each["by_fold"])} for each in report["trials"])
        return replace(self, attempts=tuple(Attempt(**each) for each in trials))

    def save(self, folder: Path) -> None:
        """Write the report, MODEL.json, and its trials as MODEL.csv and MODEL.md.

        Parameters
        ----------
        folder
            The folder to write to; an existing report of the model is replaced.

        Raises
        ------
        SourceError
            The file cannot be written.
        """
        report = json.dumps(self.to_dict(), indent=1, ensure_ascii=False)
        replace_text(folder / f"{self.study.model}.json", report + "\n")
        rows = [
            {**each.settings, "accuracy / popularity": each.value, "state": each.state}
            for each in self.attempts
        ]
        for suffix in ("csv", "md"):
            write_rows(rows, folder / f"{self.study.model}.{suffix}")
