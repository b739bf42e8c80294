"""Tuning: Optuna over a model's settings, judged by cold folds inside the training users.

The cold users of `split_cold_users(data, seed=study.seed)` are never looked at. Fold f is a cold
split of the others with seed 1000 + f. The value of a trial is the mean, over data sets and folds,
of the model's accuracy@k divided by that of popularity on the same fold.

A study lives in one SQLite file and goes on where it was stopped. What a trial draws depends on the
study's seed and on how many trials went before, so stopping changes nothing in what is found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coldhash.data.dataset import Dataset
from coldhash.data.splits import split_cold_users
from coldhash.errors import ColdhashError, DataError, SettingError
from coldhash.evaluate.metrics import accuracy_at
from coldhash.evaluate.protocol import Trial, make_trial, rank, scorer
from coldhash.lab.study import Range, Study
from coldhash.lab.study_config import RANDOM_TRIALS, finished, opened, quiet
from coldhash.lab.tuned import Attempt, FoldFacts, Tuned
from coldhash.registry import MODELS, Model

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

COLD_SHARE = 0.2
FIRST_FOLD = 1000  # the seeds of folds, far from those of splits

Progress = Callable[[float, int, float | None], None]  # trials done, of how many, best value


@dataclass(frozen=True, eq=False)
class Fold:
    """Training users, strangers among them, and what popularity is worth there."""

    facts: FoldFacts
    train: Dataset
    trial: Trial

    def value(self, model: Model, study: Study) -> float:
        """Fit and judge a model: 1 is as good as popularity."""
        return _accuracy(model, self.train, self.trial, study) / self.facts.popularity


def tune(
    study: Study,
    datasets: Mapping[str, Dataset],
    out: str | Path,
    *,
    minutes: float | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Run a study, or go on with it, and write its report.

    Parameters
    ----------
    study
        What to tune.
    datasets
        The data sets that it names.
    out
        The folder for MODEL.sqlite, MODEL.json and MODEL.md; one process at a time may use it.
    minutes
        Begin no trial after so long; the next call goes on.
    progress
        Told after each fold.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from coldhash import read
    >>> space = {"ridge": Range(low=1.0, high=1000.0)}
    >>> study = Study(model="ridge", datasets=["sample"], trials=2, space=space)
    >>> with TemporaryDirectory() as folder:
    ...     found = tune(study, {"sample": read("sample", n_users=200, n_items=60)}, folder)
    >>> len(found.attempts), found.default.settings
    (2, {'ridge': 400.0})
    """
    _need_optuna()
    if minutes is not None and not minutes > 0:
        raise SettingError(f"minutes={minutes}", hint="above 0")
    deadline = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    folds = make_folds(study, datasets)
    with quiet(), opened(study, Path(out)) as search:
        while (done := len(finished(search))) < study.trials and time.monotonic() < deadline:
            _run_trial(study, search, folds, _teller(progress, search, done, study.trials))
        tuned = Tuned(study, tuple(f.facts for f in folds), tuple(map(_attempt, finished(search))))
        _check_complete(tuned)
        tuned.save(Path(out))
    return tuned


def make_folds(study: Study, datasets: Mapping[str, Dataset]) -> list[Fold]:
    """Cut the folds, those of different data sets in turn: a bad trial is found out sooner."""
    missing = [name for name in study.datasets if name not in datasets]
    if missing:
        raise SettingError(f"the study needs the data set {missing[0]!r}")
    folds = []
    for n in range(study.folds):
        for name in study.datasets:
            users, _ = split_cold_users(datasets[name], COLD_SHARE, study.seed)
            train, cold = split_cold_users(users, COLD_SHARE, FIRST_FOLD + n)
            trial = make_trial(train, cold, seed=FIRST_FOLD + n)
            popularity = _accuracy(MODELS["popularity"](), train, trial, study)
            if not popularity > 0:
                raise DataError(
                    f"{name}: popularity finds no favourite of the {len(cold.ratings.users)} "
                    f"strangers of fold {n}",
                    hint="more data, or a larger k",
                )
            counts = (len(train.ratings.users), len(cold.ratings.users))
            folds.append(Fold(FoldFacts(name, n, *counts, popularity), train, trial))
    return folds


def _accuracy(model: Model, train: Dataset, trial: Trial, study: Study) -> float:
    ranks = rank(scorer(model.fit(train, seed=study.seed), study.score), trial)
    return accuracy_at(study.k, ranks.greater, ranks.equal)


def _run_trial(
    study: Study, search: optuna.Study, folds: list[Fold], tell: Callable[[float], None]
) -> None:
    """Judge one set of settings, fold by fold, and give up on it as soon as it is hopeless."""
    from optuna.trial import TrialState

    search.sampler = _sampler(study, len(finished(search)))
    trial = search.ask(_distributions(study))
    values: list[float] = []
    try:
        model = study.model_with(trial.params)
        for fold in folds:
            values.append(fold.value(model, study))
            trial.set_user_attr("by_fold", values)
            tell(len(values) / len(folds))
            if len(values) < len(folds) and _is_hopeless(trial, values, len(study.datasets)):
                search.tell(trial, state=TrialState.PRUNED)
                return
    except (ColdhashError, np.linalg.LinAlgError) as error:
        trial.set_user_attr("refused", str(error))
        search.tell(trial, state=TrialState.FAIL)
        return
    search.tell(trial, float(np.mean(values)))


def _is_hopeless(trial: optuna.Trial, values: list[float], n_datasets: int) -> bool:
    """Ask Optuna, each time that all data sets had one fold more.

    Not in between: values of different data sets differ, and Optuna takes the best so far.
    """
    if len(values) % n_datasets:
        return False
    trial.report(float(np.mean(values)), len(values) // n_datasets)
    return trial.should_prune()


def _sampler(study: Study, n_before: int) -> optuna.samplers.BaseSampler:
    from optuna.samplers import TPESampler

    seed = int(np.random.SeedSequence([study.seed, n_before]).generate_state(1)[0])
    return TPESampler(seed=seed, n_startup_trials=RANDOM_TRIALS)


def _distributions(study: Study) -> dict[str, BaseDistribution]:
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    found: dict[str, BaseDistribution] = {}
    for name, within in study.space.items():
        if not isinstance(within, Range):
            found[name] = CategoricalDistribution(within.choices)
        elif within.whole:
            found[name] = IntDistribution(int(within.low), int(within.high), log=within.log)
        else:
            found[name] = FloatDistribution(within.low, within.high, log=within.log)
    return found


def _attempt(trial: optuna.trial.FrozenTrial) -> Attempt:
    states: dict[str, Any] = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "refused"}
    return Attempt(
        settings=trial.params,
        state=states[trial.state.name],
        value=trial.value,
        by_fold=tuple(trial.user_attrs.get("by_fold", ())),
        seconds=0.0 if trial.duration is None else trial.duration.total_seconds(),
        is_default=trial.user_attrs.get("is_default", False),
        message=trial.user_attrs.get("refused"),
    )


def _check_complete(tuned: Tuned) -> None:
    if not any(attempt.state == "complete" for attempt in tuned.attempts):
        why = [attempt.message for attempt in tuned.attempts if attempt.message]
        raise SettingError(
            f"no trial of {tuned.study.model} came to an end"
            + (f", all {len(why)} were refused: {why[0]}" if why else ""),
            hint="other settings or another space" if why else "more minutes",
        )


def _teller(
    progress: Progress | None, search: optuna.Study, done: int, total: int
) -> Callable[[float], None]:
    values = [each.value for each in finished(search) if each.state.name == "COMPLETE"]
    best = max((value for value in values if value is not None), default=None)
    if progress is None:
        return lambda part: None
    return lambda part: progress(done + part, total, best)


def _need_optuna() -> None:
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise SettingError("tuning needs Optuna", hint="pip install coldhash[tune]") from None
