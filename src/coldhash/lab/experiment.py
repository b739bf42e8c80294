"""Describe experiments: a TOML file names data, splits, models and grids, and becomes runs.

    name = "figure-1"
    about = "Accuracy@k for strangers on MovieLens-1M"
    datasets = ["ml-1m"]
    splits = 5
    scores = ["real", "hamming"]

    [[models]]
    model = "mfdcf"
    grid = {n_bits = [16, 32, 64, 128]}

    [[models]]
    model = "ddl"
    splits = 3                             # replaces the value above for one model
    grid = {n_bits = [8, 16, 32, 64, 128]}

    [quick]                                # replaces values with `--quick`
    splits = 1
    grid = {n_bits = [16, 64]}

A run is one fit on one split, and all questions about the fitted model.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, Field, NonNegativeInt, PositiveInt

from coldhash.data.dataset import Order
from coldhash.data.plan import Strict, TomlConfig
from coldhash.data.sources import SOURCES
from coldhash.errors import check_choice
from coldhash.evaluate.protocol import PROTOCOLS
from coldhash.lab.printed import METHODS
from coldhash.registry import settings_from

Item = TypeVar("Item")
Some = Annotated[list[Item], Field(min_length=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Grid = dict[str, Some[object]]

_PACKAGE = Path(__file__).parents[1]


def experiments_folder() -> Path:
    """Return the folder of experiments, in an installed package or at the root of a checkout."""
    inside = _PACKAGE / "experiments"
    return inside if inside.is_dir() else _PACKAGE.parents[1] / "experiments"


class _Questions(Strict, BaseModel):
    """Values for the whole experiment that one model may replace."""

    datasets: Some[str] = ["sample"]
    splits: PositiveInt = 5
    protocols: Some[str] = ["sampled-1000"]
    shots: Some[NonNegativeInt] = [0]
    oracle: Some[bool] = [False]
    scores: Some[Literal["real", "hamming"]] = ["real"]
    train_shares: Some[Share] = [1.0]
    popularity: Some[Annotated[float, Field(ge=0, le=1)]] = [1.0]
    user_ratings: Some[NonNegativeInt] = [0]
    order: Order | None = None


class ModelPlan(_Questions):
    """A method with fixed settings and settings that run over a grid.

    Parameters
    ----------
    model
        A key of `coldhash.registry.MODELS`, or "printed-mfdcf".
    label
        Its name in tables; that of the method if None.
    settings
        Fixed settings.
    grid
        Lists of values by setting; every combination is run.
    datasets, splits, protocols, shots, oracle, scores, train_shares, popularity
        Replace those of the `Experiment`, if given.
    user_ratings, order
        Replace those of the `Experiment`, if given.

    Examples
    --------
    >>> plan = ModelPlan(model="mfdcf", grid={"n_bits": [16, 32]})
    >>> len(Experiment(name="bits", splits=3, models=[plan]).runs())
    6
    """

    model: str
    label: str | None = None
    settings: dict[str, object] = {}
    grid: Grid = {}


class Quick(_Questions):
    """Values of the quick version; a grid replaces those of the same name."""

    grid: Grid = {}


class Experiment(_Questions, TomlConfig):
    """Models to run on data sets, and the questions to answer.

    Parameters
    ----------
    name
        Lower-case letters, digits and hyphens; the name of the folder of results.
    about
        A description; the title of its section in a report.
    text
        What that section begins with.
    models
        What to fit.
    datasets
        Names of data sets.
    splits
        Number of random splits of the users.
    seed
        Seed of the first split.
    protocols
        Keys of `PROTOCOLS`.
    shots
        Numbers of ratings that a cold user gives first.
    oracle
        Whether the model sees the hidden ratings, a leak.
    scores
        "real" and "hamming", the latter for methods with codes.
    train_shares
        Shares of the training users to fit on.
    popularity
        How much the level of items counts, for methods that have it.
    user_ratings
        Ratings that a training user has at most, drawn at random; 0 for all.
    order
        Give first ratings by "time", or a "random" choice; None: by time where times are known.
    timed
        Measure fit times: one process, one thread, without compilation.
    quick
        Values of the quick version.

    Raises
    ------
    SettingError
        If a value is invalid.

    Examples
    --------
    >>> grid = {"n_bits": [16, 32]}
    >>> plan = Experiment(name="bits", splits=2, models=[{"model": "mfdcf", "grid": grid}])
    >>> [(run.split, run.settings) for run in plan.runs()]
    [(0, '{"n_bits": 16}'), (0, '{"n_bits": 32}'), (1, '{"n_bits": 16}'), (1, '{"n_bits": 32}')]
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    about: str = ""
    text: str = ""
    seed: NonNegativeInt = 0
    timed: bool = False
    models: Annotated[list[ModelPlan], Field(min_length=1)]
    quick: Quick = Quick()

    def quick_version(self) -> Experiment:
        """Return the experiment with the values of `quick`, where it has values of its own.

        Returns
        -------
        Experiment
            A copy in which `quick` replaces values and grids that were given; others stay.
        """
        values = self.quick.model_dump(exclude_unset=True)
        grid = values.pop("grid", {})

        def replaced(part: _Questions) -> dict[str, object]:
            return {name: values[name] for name in values.keys() & part.model_fields_set}

        models = []
        for plan in self.models:
            quick = {name: grid.get(name, every) for name, every in plan.grid.items()}
            models.append(plan.model_copy(update=replaced(plan) | {"grid": quick}))
        return self.model_copy(update=replaced(self) | {"models": models})

    def runs(self, own: str | None = None) -> list[Run]:
        """List the runs, those of one split together.

        Parameters
        ----------
        own
            The name of a data set that takes the place of all others.

        Returns
        -------
        list of Run
            A run for each model, point of its grid, data set, training share and split, each once.

        Raises
        ------
        SettingError
            A model, data set, protocol or setting is unknown, or a setting is invalid.
        """
        runs = [run for plan in self.models for run in self._runs_of(plan, own)]
        return sorted(dict.fromkeys(runs), key=lambda run: (run.dataset, run.split))

    def _runs_of(self, plan: ModelPlan, own: str | None) -> Iterator[Run]:
        names = set(_Questions.model_fields)
        values = self.model_dump(include=names) | plan.model_dump(include=names, exclude_unset=True)
        check_choice("model", plan.model, METHODS)
        for protocol in values["protocols"]:
            check_choice("protocols", protocol, PROTOCOLS)
        for dataset in values["datasets"]:
            check_choice("datasets", dataset, SOURCES)
        if own is not None:
            values["datasets"] = [own]
        asked = (values[name] for name in ("protocols", "shots", "oracle", "scores", "popularity"))
        questions = tuple(Question(*each) for each in itertools.product(*asked))
        parts = (values[name] for name in ("datasets", "train_shares", "user_ratings"))
        for *point, dataset, share, n in itertools.product(*plan.grid.values(), *parts):
            settings = plan.settings | dict(zip(plan.grid, point, strict=True))
            settings_from(METHODS[plan.model], settings)  # an invalid one fails before the runs
            for split in range(values["splits"]):
                yield Run(
                    dataset=dataset,
                    split=self.seed + split,
                    train_share=share,
                    user_ratings=n,
                    model=plan.model,
                    label=plan.label or plan.model,
                    settings=json.dumps(settings, sort_keys=True),
                    questions=questions,
                    order=values["order"],
                    timed=self.timed,
                )


@dataclass(frozen=True)
class Question:
    """One way to judge a fitted model."""

    protocol: str
    shots: int
    oracle: bool
    score: Literal["real", "hamming"]
    popularity: float


@dataclass(frozen=True)
class Run:
    """One fit on one split; `settings` are JSON, so that runs can be hashed."""

    dataset: str
    split: int  # also the seed of the split, of the fit and of the candidates
    train_share: float
    user_ratings: int  # of a user at most; 0: all
    model: str
    label: str
    settings: str
    questions: tuple[Question, ...]
    order: Order | None
    timed: bool

    @property
    def key(self) -> str:
        """A hash of everything that determines the result."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]
