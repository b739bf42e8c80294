"""Tune the settings of a model with Optuna on cold folds of the training users.

The cold users of `split_cold_users(data, seed=study.seed)` are never used. Fold f is a cold split
of the others with seed 1000 + f. The value of a trial is the mean, over data sets and folds, of
the model's accuracy@k divided by that of popularity on the same fold.

The report is written after each trial, and a study is resumed from its report. What a trial draws
depends on the study's seed and the earlier trials alone, so stopping changes no result.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coldhash.data.dataset import Dataset
from coldhash.data.splits import split_cold_users
from coldhash.errors import CodeCollapse, ColdhashError, DataError, SettingError, import_extra
from coldhash.evaluate import Trial, accuracy_at, make_trial, rank, scorer
from coldhash.files import lock_file
from coldhash.lab.study import Attempt, AttemptState, Choices, FoldInfo, Range, Study, StudyResult
from coldhash.registry import MODELS, Model

if TYPE_CHECKING:
    import optuna

_COLD_SHARE = 0.2
_FIRST_FOLD = 1000  # the seeds of folds, different from those of splits
_RANDOM_TRIALS = 5  # before Optuna begins to model, and before it prunes
_REFUSALS = (ColdhashError, np.linalg.LinAlgError)  # of settings, by a model

StudyProgress = Callable[[float, int, float | None], None]  # trials done, in all, best value


@dataclass(frozen=True, eq=False)
class Fold:
    """Training users, cold users among them, and the accuracy of popularity."""

    info: FoldInfo
    train: Dataset
    trial: Trial

    def judge(self, model: Model, study: Study) -> float:
        """Fit a model and divide its accuracy by that of popularity."""
        return _accuracy(model, self.train, self.trial, study) / self.info.popularity


def run_study(
    study: Study,
    datasets: Mapping[str, Dataset],
    out: str | Path,
    progress: StudyProgress | None = None,
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
        Called after each fold with trials done, trials in all, and the best value.

    Returns
    -------
    StudyResult

    Raises
    ------
    SettingError
        If Optuna or a data set is missing, the folder holds a different study or is used by
        another process, or no trial is complete.
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
    import_extra("optuna", "tune")
    folds = make_folds(study, datasets)
    prints = {name: datasets[name].fingerprint for name in study.datasets}
    infos, file = tuple(fold.info for fold in folds), Path(out) / f"{study.model}.json"
    busy = f"{file}: another process is running this study"
    with _quiet(), lock_file(file.with_name(f".{study.model}.lock"), busy):
        result = StudyResult(study, infos, (), prints)
        if file.exists():
            result = result.resume(file)
        while len(result.attempts) < study.trials:
            attempt = _run_trial(study, folds, result.attempts, progress)
            result = replace(result, attempts=(*result.attempts, attempt))
            if result.complete:
                result.save(Path(out))
    if not result.complete:
        raise SettingError(
            f"all {len(result.attempts)} trials of {study.model} were refused:"
            f" {result.attempts[-1].message}"
        )
    return result


def make_folds(study: Study, datasets: Mapping[str, Dataset]) -> list[Fold]:
    """Make the folds, those of different data sets in turn, so that pruning sees all data early."""
    missing = [name for name in study.datasets if name not in datasets]
    if missing:
        raise SettingError(f"the study needs the data set {missing[0]!r}")
    folds = []
    for n in range(study.folds):
        for name in study.datasets:
            users, _ = split_cold_users(datasets[name], _COLD_SHARE, study.seed)
            train, cold = split_cold_users(users, _COLD_SHARE, _FIRST_FOLD + n)
            trial = make_trial(train, cold, seed=_FIRST_FOLD + n)
            popularity = _accuracy(MODELS["popularity"](), train, trial, study)
            if not popularity > 0:
                raise DataError(
                    f"{name}: popularity finds no favourite of the {len(cold.ratings.users)} "
                    f"strangers of fold {n}",
                    hint="more data, or a larger k",
                )
            counts = (len(train.ratings.users), len(cold.ratings.users))
            folds.append(Fold(FoldInfo(name, n, *counts, popularity), train, trial))
    return folds


def _accuracy(model: Model, train: Dataset, trial: Trial, study: Study) -> float:
    ranks = rank(scorer(model.fit(train, seed=study.seed), study.score), trial)
    return accuracy_at(study.k, ranks.greater, ranks.equal)


def _run_trial(
    study: Study,
    folds: list[Fold],
    before: tuple[Attempt, ...],
    progress: StudyProgress | None,
) -> Attempt:
    """Judge one set of settings fold by fold, until Optuna prunes it."""
    best = max((each.value or 0.0 for each in before if each.state == "complete"), default=None)
    trial, start = _draw(study, before), time.perf_counter()
    values: list[float] = []
    state: AttemptState = "complete"
    message = None
    try:
        model = study.make_model(trial.params)
        for fold in folds:
            values.append(fold.judge(model, study))
            if progress is not None:
                progress(len(before) + len(values) / len(folds), study.trials, best)
            n_rounds, between = divmod(len(values), len(study.datasets))
            if between == 0 and len(values) < len(folds):  # values of data sets differ
                trial.report(float(np.mean(values)), n_rounds)
                if trial.should_prune():
                    state = "pruned"
                    break
    except _REFUSALS as error:
        state, message = "refused", str(error)
    value = None if state == "refused" else float(np.mean(values))
    seconds = time.perf_counter() - start
    return Attempt(trial.params, state, value, tuple(values), seconds, not before, message)


def _draw(study: Study, before: tuple[Attempt, ...]) -> optuna.Trial:
    """Draw settings, given those that were tried; the first trial has the defaults."""
    import optuna

    seed = int(np.random.SeedSequence([study.seed, len(before)]).generate_state(1)[0])
    search = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=_RANDOM_TRIALS),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=_RANDOM_TRIALS),
    )
    space = {name: _distribution(domain) for name, domain in study.space.items()}
    n_datasets = len(study.datasets)
    for attempt in before:
        if attempt.state != "refused":
            n_reported = min(len(attempt.by_fold) // n_datasets, study.folds - 1)
            reported = {
                n: float(np.mean(attempt.by_fold[: n * n_datasets]))
                for n in range(1, n_reported + 1)
            }
            search.add_trial(
                optuna.trial.create_trial(
                    state=optuna.trial.TrialState[attempt.state.upper()],
                    value=attempt.value,
                    params=attempt.settings,
                    distributions=space,
                    intermediate_values=reported,
                )
            )
    if not before:
        search.enqueue_trial(study.start)
    return search.ask(space)


def _distribution(domain: Range | Choices) -> optuna.distributions.BaseDistribution:
    import optuna

    if isinstance(domain, Choices):
        return optuna.distributions.CategoricalDistribution(domain.choices)
    if domain.is_integer:
        return optuna.distributions.IntDistribution(int(domain.low), int(domain.high), domain.log)
    return optuna.distributions.FloatDistribution(domain.low, domain.high, domain.log)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's log, and warnings of collapsing codes."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CodeCollapse)
            yield
    finally:
        optuna.logging.set_verbosity(before)
