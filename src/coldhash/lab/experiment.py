"""Experiments: a TOML file names data, splits, models and grids; it becomes a list of runs.

    name = "figure-1"
    about = "Accuracy@k for strangers on MovieLens-1M"
    datasets = ["ml-1m"]
    splits = 5
    scores = ["real", "hamming"]

    [[models]]
    model = "mfdcf"
    grid = {n_bits = [8, 16, 32, 64, 128]}

    [[models]]
    model = "ddl"
    splits = 3                             # what stands above may be said again for one model
    grid = {n_bits = [8, 16, 32, 64, 128]}

    [quick]                                # what `--quick` takes instead
    splits = 1
    grid = {n_bits = [16, 64]}

A run is one fit on one split, and everything that is asked of the fitted model.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coldhash.data.plan import read_toml, validation_error
from coldhash.data.sources import SOURCES
from coldhash.errors import SettingError
from coldhash.evaluate.protocol import PROTOCOLS
from coldhash.lab.printed import METHODS
from coldhash.recommender.settings import settings_from

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, le=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Questions(_Part):
    """What may be said for the whole experiment, and again for one model."""

    datasets: list[str] | None = None
    splits: Count | None = None
    protocols: list[str] | None = None
    shots: list[Annotated[int, Field(ge=0)]] | None = None  # ratings a stranger gives
    oracle: list[bool] | None = None  # True: features made from the hidden ratings, a leak
    scores: list[Literal["real", "hamming"]] | None = None  # hamming: where there are codes
    train_shares: list[Share] | None = None  # of the training users


class ModelPlan(_Questions):
    """A method, settings that are fixed, and settings that run over a grid.

    Examples
    --------
    >>> plan = ModelPlan(model="mfdcf", grid={"n_bits": [16, 32]})
    >>> len(Experiment(name="bits", splits=3, models=[plan]).runs())
    6
    """

    model: str
    label: str | None = None  # what tables call it; the name of the method if not given
    settings: dict[str, Any] = {}
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}


class Quick(_Questions):
    """What a quick version takes instead; a grid replaces those of the same name."""

    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}


class Experiment(_Questions):
    """What to run.

    Examples
    --------
    >>> grid = {"n_bits": [8, 16]}
    >>> plan = Experiment(name="bits", splits=2, models=[{"model": "mfdcf", "grid": grid}])
    >>> [(run.split, run.settings) for run in plan.runs()]
    [(0, '{"n_bits": 8}'), (0, '{"n_bits": 16}'), (1, '{"n_bits": 8}'), (1, '{"n_bits": 16}')]
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    about: str = ""
    seed: Annotated[int, Field(ge=0)] = 0
    cold_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    timed: bool = False  # fit times are the point: one process, one thread, nothing compiled
    models: Annotated[list[ModelPlan], Field(min_length=1)]
    quick: Quick = Quick()

    def __init__(self, **parts: Any) -> None:
        try:
            super().__init__(**parts)
        except ValidationError as error:
            raise validation_error("experiment", error) from None

    @classmethod
    def from_toml(cls, path: str | Path) -> Experiment:
        """Read an experiment from a TOML file."""
        return read_toml(cls, path)

    def quickened(self) -> Experiment:
        """Give the quick version."""
        models = [
            plan.model_copy(
                update=self._quick_words(plan)
                | {"grid": {n: self.quick.grid.get(n, values) for n, values in plan.grid.items()}}
            )
            for plan in self.models
        ]
        return self.model_copy(update=self._quick_words(self) | {"models": models})

    def _quick_words(self, part: _Questions) -> dict[str, Any]:
        """Give what is said in [quick] of the things that a part says for itself."""
        said = self.quick.model_dump(exclude={"grid"}, exclude_none=True)
        return {name: value for name, value in said.items() if getattr(part, name)}

    def runs(self) -> list[Run]:
        """List the runs: those of one split side by side, so that it is made once."""
        runs = [run for plan in self.models for run in self._runs_of(plan)]
        return sorted(dict.fromkeys(runs), key=lambda run: (run.dataset, run.split))

    def _runs_of(self, plan: ModelPlan) -> Iterator[Run]:
        if plan.model not in METHODS:
            raise SettingError(
                f"{self.name}: no method is called {plan.model!r}", hint=", ".join(METHODS)
            )
        asked = {
            name: getattr(plan, name) or getattr(self, name) or value for name, value in DEFAULTS
        }
        for name, known in (("datasets", SOURCES), ("protocols", PROTOCOLS)):
            unknown = [each for each in asked[name] if each not in known]
            if unknown:
                raise SettingError(
                    f"{self.name}: {name}: no {unknown[0]!r}", hint=f"one of {', '.join(known)}"
                )
        questions = tuple(
            Question(*each)
            for each in itertools.product(
                asked["protocols"], asked["shots"], asked["oracle"], asked["scores"]
            )
        )
        points = itertools.product(*plan.grid.values())
        for point, dataset, share in itertools.product(
            points, asked["datasets"], asked["train_shares"]
        ):
            settings = plan.settings | dict(zip(plan.grid, point, strict=True))
            settings_from(METHODS[plan.model], settings)  # a wrong one is told before the first run
            for split in range(asked["splits"]):
                yield Run(
                    dataset=dataset,
                    cold_share=self.cold_share,
                    split=self.seed + split,
                    train_share=share,
                    model=plan.model,
                    label=plan.label or plan.model,
                    settings=json.dumps(settings, sort_keys=True),
                    questions=questions,
                    timed=self.timed,
                )


DEFAULTS: tuple[tuple[str, Any], ...] = (
    ("datasets", ["sample"]),
    ("splits", 5),
    ("protocols", ["sampled-1000"]),
    ("shots", [0]),
    ("oracle", [False]),
    ("scores", ["real"]),
    ("train_shares", [1.0]),
)


@dataclass(frozen=True)
class Question:
    """One way to judge a fitted model."""

    protocol: str
    shots: int
    oracle: bool
    score: Literal["real", "hamming"]


@dataclass(frozen=True)
class Run:
    """One fit on one split; `settings` are JSON, so that a run can be compared and hashed."""

    dataset: str
    cold_share: float
    split: int  # also the seed of the split, of the fit and of the candidates
    train_share: float
    model: str
    label: str
    settings: str
    questions: tuple[Question, ...]
    timed: bool

    @property
    def key(self) -> str:
        """Name the run by all that decides its outcome."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]
