"""Tune the settings of a model with Optuna on cold folds of the training users.

    model = "mfdcf"
    datasets = ["ml-1m", "book-crossing"]
    settings = {n_bits = 32}     # fixed
    trials = 20
    folds = 2

    [space]
    code_weight = {low = 0.01, high = 100.0, log = true}
    n_rounds = {low = 5, high = 30}               # integers, as both ends are
    level = [true, false]        # one of several values
    stranger_weight = {low = 0.1, high = 0.9, start = 0.6}

The first trial uses the model's defaults. `start` replaces a default that is not in the space, such
as None for a value that is chosen during the fit.

The cold users of `split_cold_users(data, seed=study.seed)` are never used. Fold f is a cold split
of the others with seed 1000 + f. The value of a trial is the mean, over data sets and folds, of
the model's accuracy@k divided by that of popularity on the same fold.

The report is written after each trial, and a study is resumed from its report. What a trial draws
depends on the study's seed and the earlier trials alone, so stopping changes no result.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

import coldhash as ch
from coldhash import errors
from coldhash.data.plan import Strict, TomlConfig
from coldhash.evaluate import Trial, accuracy_at, make_trial, rank, scorer
from coldhash.files import Json, lock_file, replace_text
from coldhash.lab.experiment import Some
from coldhash.lab.printed import METHODS
from coldhash.lab.runner import Row, ignore_progress, stamp
from coldhash.registry import MODELS, Model, settings_from
from coldhash.render import write_rows

if TYPE_CHECKING:
    import optuna

_COLD_SHARE = 0.2
_FIRST_FOLD = 1000  # the seeds of folds, different from those of splits
_RANDOM_TRIALS = 5  # before Optuna begins to model, and before it prunes

StudyProgress = Callable[[float, int], None]  # trials done, and in all
AttemptState = Literal["complete", "pruned"]


class Range(Strict, strict=True):
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
    >>> 5 in Range(low=1, high=8), 0.05 in Range(low=0.1, high=10.0, log=True)
    (True, False)
    """

    low: int | float
    high: int | float
    log: bool = False
    start: int | float | None = None

    def __contains__(self, value: object) -> bool:
        """Check whether a value of a setting is in the range."""
        kind = int if self._is_integer else int | float
        return isinstance(value, kind) and self.low <= value <= self.high

    @property
    def _is_integer(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def distribution(self) -> optuna.distributions.BaseDistribution:
        """Return the range as Optuna has it."""
        kinds = errors.import_extra("optuna.distributions", "tune")
        kind = kinds.IntDistribution if self._is_integer else kinds.FloatDistribution
        return kind(self.low, self.high, self.log)  # type: ignore[no-any-return]

    def model_post_init(self, _: object) -> None:
        """Check the ends, which Optuna does."""
        self.distribution()


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
        A `Range`, or a list of values, for each setting to tune.

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
    space: Annotated[dict[str, Range | Some[bool | int | float | str]], Field(min_length=1)]

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
        values = vars(self.make_model({}))
        ranges = {name: each for name, each in self.space.items() if isinstance(each, Range)}
        given = {name: each.start for name, each in ranges.items() if each.start is not None}
        return {name: given.get(name, values[name]) for name in self.space}

    @model_validator(mode="after")
    def _check(self) -> Study:
        errors.check_choice("model", self.model, METHODS)
        known = vars(self.make_model({}))
        for name in self.space:
            errors.check_choice("space", name, known)
            if name in self.settings:
                raise ValueError(f"{name} is both fixed in settings and tuned in space")
        for name, domain in self.space.items():
            for value in (domain.low, domain.high) if isinstance(domain, Range) else domain:
                self.make_model({name: value})  # which checks it
        for name, start in self.start.items():
            if start not in self.space[name]:
                raise ValueError(
                    f"space.{name} does not contain the default {start!r}: widen it, or set start"
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
        "complete" or "pruned".
    value
        Mean over folds of the accuracy divided by that of popularity.
    by_fold
        The values of the folds that were run.
    seconds
        Duration.

    Examples
    --------
    >>> Attempt({"ridge": 50.0}, "complete", value=1.2, by_fold=(1.1, 1.3), seconds=0.1).state
    'complete'
    """

    settings: dict[str, object]
    state: AttemptState
    value: float
    by_fold: tuple[float, ...]
    seconds: float


@dataclass(frozen=True)
class StudyResult:
    """The finished trials of a study.

    Parameters
    ----------
    study
        What was tuned.
    folds
        The folds, those of different data sets in turn: the name of the data set, the number of the
        fold, its training and cold users, and the accuracy of popularity.
    attempts
        The trials in order, that of the defaults first.
    fingerprints
        Of the data sets, by name.

    Examples
    --------
    >>> space = {"ridge": Range(low=1.0, high=1000.0)}
    >>> study = Study(model="ridge", datasets=["sample"], space=space)
    >>> tried = (
    ...     Attempt({"ridge": 400.0}, "complete", 1.1, (1.1,), seconds=0.1),
    ...     Attempt({"ridge": 50.0}, "complete", 1.2, (1.2,), seconds=0.1),
    ... )
    >>> StudyResult(study, (), tried).best.settings
    {'ridge': 50.0}
    """

    study: Study
    folds: tuple[dict[str, Json], ...]
    attempts: tuple[Attempt, ...]
    fingerprints: dict[str, str] = field(default_factory=dict)

    @property
    def default(self) -> Attempt:
        """The trial of the defaults."""
        return self.attempts[0]

    @property
    def best(self) -> Attempt:
        """The first complete trial of the highest value."""
        complete = [each for each in self.attempts if each.state == "complete"]
        return max(complete, key=lambda each: each.value)

    @property
    def improvement(self) -> float:
        """The best value minus that of the defaults."""
        return float(np.mean(self._differences()))

    @property
    def noise(self) -> float | None:
        """Standard deviation of the improvement over the folds of a data set; None for one fold."""
        if self.study.folds < 2:
            return None
        by_dataset = self._differences().reshape(self.study.folds, -1)
        return float(np.sqrt(np.var(by_dataset, axis=0, ddof=1).mean()))

    def _differences(self) -> np.ndarray:
        return np.subtract(self.best.by_fold, self.default.by_fold)

    def to_dict(self) -> dict[str, object]:
        """Return all results as JSON values, with versions of packages and the kind of machine.

        Returns
        -------
        dict of str to object
            Keys study, data (fingerprints), defaults (of the model), versions, folds, best,
            default, improvement, noise and trials.
        """
        ends = {"best": self.best, "default": self.default}
        return {
            **self._identity(),
            "versions": stamp() | {"optuna": version("optuna")},
            "folds": self.folds,
            **{n: {"settings": each.settings, "value": each.value} for n, each in ends.items()},
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
        """Return the result with the trials of a report; only the number of trials may differ."""
        report = json.loads(file.read_text(encoding="utf-8"))
        old, new = (
            {**each["study"], "data": each["data"], "defaults": each["defaults"], "trials": None}
            for each in (report, self._identity())
        )
        changed = [name for name in new if new[name] != old.get(name)]
        if changed:
            raise errors.SettingError(
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


@dataclass(frozen=True, eq=False)
class Fold:
    """Training users, cold users among them, and a report on both."""

    facts: Row
    train: ch.Dataset
    trial: Trial


def run_study(
    study: Study,
    datasets: Mapping[str, ch.Dataset],
    out: str | Path,
    progress: StudyProgress = ignore_progress,
) -> StudyResult:
    """Run or resume a study and write its report.

    Parameters
    ----------
    study
        What to tune.
    datasets
        The data sets that it names.
    out
        The folder for the report, MODEL.json, .csv and .md, from which a study is resumed; one
        process at a time may use it.
    progress
        Called after each fold with trials done, and trials in all.

    Returns
    -------
    StudyResult

    Raises
    ------
    SettingError
        If Optuna or a data set is missing, or the folder holds a different study or is used by
        another process.
    DataError
        If popularity finds no favourite on a fold.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from coldhash import read
    >>> space = {"ridge": {"low": 1.0, "high": 1000.0}}
    >>> study = Study(model="ridge", datasets=["sample"], trials=2, space=space)
    >>> with TemporaryDirectory() as folder:
    ...     found = run_study(study, {"sample": read("sample", n_users=200, n_items=60)}, folder)
    >>> len(found.attempts), found.default.settings
    (2, {'ridge': 400.0})
    """
    folds = make_folds(study, datasets)
    prints = {name: datasets[name].fingerprint for name in study.datasets}
    facts, file = tuple(fold.facts for fold in folds), Path(out) / f"{study.model}.json"
    busy = f"{file}: another process is running this study"
    with lock_file(file.with_name(f".{study.model}.lock"), busy), warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.CodeCollapse)
        result = StudyResult(study, facts, (), prints)
        if file.exists():
            result = result.resume(file)
        while len(result.attempts) < study.trials:
            attempt = _run_trial(study, folds, result.attempts, progress)
            result = replace(result, attempts=(*result.attempts, attempt))
            result.save(Path(out))
    return result


def make_folds(study: Study, datasets: Mapping[str, ch.Dataset]) -> list[Fold]:
    """Make the folds, those of different data sets in turn, so that pruning sees all data early."""
    for name in study.datasets:
        errors.check_choice("datasets", name, datasets)
    folds = []
    for n in range(study.folds):
        for name in study.datasets:
            users, _ = ch.split_cold_users(datasets[name], _COLD_SHARE, study.seed)
            train, cold = ch.split_cold_users(users, _COLD_SHARE, _FIRST_FOLD + n)
            trial = make_trial(train, cold, seed=_FIRST_FOLD + n)
            popularity = _accuracy(MODELS["popularity"](), train, trial, study)
            if not popularity > 0:
                raise errors.DataError(
                    f"{name}: popularity finds no favourite of {cold.n_users} strangers (fold {n})",
                    hint="more data, or a larger k",
                )
            sizes = {"n_train": train.n_users, "n_cold": cold.n_users}
            facts = {"dataset": name, "fold": n, **sizes, "popularity": popularity}
            folds.append(Fold(facts, train, trial))
    return folds


def _accuracy(model: Model, train: ch.Dataset, trial: Trial, study: Study) -> float:
    ranks = rank(scorer(model.fit(train, seed=study.seed), study.score), trial)
    return accuracy_at(study.k, ranks.greater, ranks.equal)


def _run_trial(
    study: Study, folds: list[Fold], before: tuple[Attempt, ...], progress: StudyProgress
) -> Attempt:
    """Judge one set of settings fold by fold, until Optuna prunes it."""
    trial, start = _draw(study, before), time.perf_counter()
    model, values = study.make_model(trial.params), list[float]()
    state: AttemptState = "complete"
    for fold in folds:
        accuracy = _accuracy(model, fold.train, fold.trial, study)
        values.append(accuracy / fold.facts["popularity"])
        progress(len(before) + len(values) / len(folds), study.trials)
        n_rounds, between = divmod(len(values), len(study.datasets))
        if between == 0 and len(values) < len(folds):  # values of data sets differ
            trial.report(float(np.mean(values)), n_rounds)
            if trial.should_prune():
                state = "pruned"
                break
    value, seconds = float(np.mean(values)), time.perf_counter() - start
    return Attempt(trial.params, state, value, tuple(values), seconds)


def _draw(study: Study, before: tuple[Attempt, ...]) -> optuna.Trial:
    """Draw settings, given those that were tried; the first trial has the defaults."""
    optuna = errors.import_extra("optuna", "tune")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    seed = int(np.random.SeedSequence([study.seed, len(before)]).generate_state(1)[0])
    search = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=_RANDOM_TRIALS),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=_RANDOM_TRIALS),
    )
    choices = optuna.distributions.CategoricalDistribution
    space = {
        name: domain.distribution() if isinstance(domain, Range) else choices(domain)
        for name, domain in study.space.items()
    }
    size = len(study.datasets)
    for attempt in before:
        rounds = range(1, len(attempt.by_fold) // size + 1)
        tried = optuna.trial.create_trial(
            state=optuna.trial.TrialState[attempt.state.upper()],
            value=attempt.value,
            params=attempt.settings,
            distributions=space,
            intermediate_values={n: np.mean(attempt.by_fold[: n * size]) for n in rounds},
        )
        search.add_trial(tried)
    if not before:
        search.enqueue_trial(study.start)
    return search.ask(space)  # type: ignore[no-any-return]
