"""Tune the settings of a model with Optuna on cold folds of the training users.

The cold users of `split_cold_users(data, seed=study.seed)` are never used. Fold f is a cold split
of the others with seed 1000 + f. The value of a trial is the mean, over data sets and folds, of
the model's accuracy@k divided by that of popularity on the same fold.

A study is kept in one SQLite file, which one process at a time may open, and is resumed where it
was stopped. What a trial draws depends on the study's seed and the number of earlier trials, so
stopping changes no result: after a trial that was killed, which is marked as failed, the next one
draws the same settings.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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
_STATES: dict[str, AttemptState] = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "refused"}

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
        The folder for MODEL.sqlite and the report, MODEL.json, .csv and .md; one process at a time
        may use it.
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
    with _quiet(), _open_study(study, prints, Path(out)) as search:
        attempts = _list_attempts(search)
        while len(attempts) < study.trials:
            _run_trial(study, search, folds, attempts, progress)
            attempts = _list_attempts(search)
        if not any(attempt.state == "complete" for attempt in attempts):
            raise SettingError(
                f"all {len(attempts)} trials of {study.model} were refused: {attempts[0].message}",
                hint="other settings or another space",
            )
        result = StudyResult(study, tuple(fold.info for fold in folds), attempts)
        result.save(Path(out))
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
    search: optuna.Study,
    folds: list[Fold],
    before: tuple[Attempt, ...],
    progress: StudyProgress | None,
) -> None:
    """Judge one set of settings fold by fold, until Optuna prunes it."""
    import optuna

    best = max((each.value or 0.0 for each in before if each.state == "complete"), default=None)

    def judge(trial: optuna.Trial) -> float:
        values: list[float] = []
        try:
            drawn = {name: _suggest(trial, name, domain) for name, domain in study.space.items()}
            model = study.make_model(drawn)
            for fold in folds:
                values.append(fold.judge(model, study))
                trial.set_user_attr("by_fold", values)
                if progress is not None:
                    progress(len(before) + len(values) / len(folds), study.trials, best)
                n_rounds, between = divmod(len(values), len(study.datasets))
                if between == 0 and len(values) < len(folds):  # values of data sets differ
                    trial.report(float(np.mean(values)), n_rounds)
                    if trial.should_prune():
                        raise optuna.TrialPruned
        except _REFUSALS as error:
            trial.set_user_attr("refused", str(error))
            raise
        return float(np.mean(values))

    seed = int(np.random.SeedSequence([study.seed, len(before)]).generate_state(1)[0])
    search.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=_RANDOM_TRIALS)
    search.optimize(judge, n_trials=1, catch=_REFUSALS)


def _suggest(trial: optuna.Trial, name: str, domain: Range | Choices) -> object:
    """Draw a value of a setting."""
    if not isinstance(domain, Range):
        return trial.suggest_categorical(name, domain.choices)
    if domain.is_integer:
        return trial.suggest_int(name, int(domain.low), int(domain.high), log=domain.log)
    return trial.suggest_float(name, domain.low, domain.high, log=domain.log)


def _list_attempts(search: optuna.Study) -> tuple[Attempt, ...]:
    """List the trials that were not interrupted, in order."""
    return tuple(
        Attempt(
            settings=trial.params,
            state=_STATES[trial.state.name],
            value=trial.value,
            by_fold=tuple(trial.user_attrs.get("by_fold", ())),
            seconds=0.0 if trial.duration is None else trial.duration.total_seconds(),
            is_default=trial.user_attrs.get("is_default", False),
            message=trial.user_attrs.get("refused"),
        )
        for trial in search.get_trials(deepcopy=False)
        if trial.state.name in ("COMPLETE", "PRUNED") or "refused" in trial.user_attrs
    )


@contextmanager
def _open_study(study: Study, prints: dict[str, str], out: Path) -> Iterator[optuna.Study]:
    """Open or create the study's file, and queue the defaults as the first trial."""
    import optuna

    file = out / f"{study.model}.sqlite"
    with lock_file(out / f".{study.model}.lock", f"{file}: another process is running this study"):
        storage = optuna.storages.RDBStorage(f"sqlite:///{file}")
        try:
            search = optuna.create_study(
                study_name=study.model,
                storage=storage,
                direction="maximize",
                pruner=optuna.pruners.MedianPruner(n_startup_trials=_RANDOM_TRIALS),
                load_if_exists=True,
            )
            _check_same(study, prints, search, file)
            _queue_defaults(study, search)
            yield search
        finally:
            storage.remove_session()
            storage.engine.dispose()


def _check_same(study: Study, prints: dict[str, str], search: optuna.Study, file: Path) -> None:
    """Raise an error if the file is of another study; only `trials` may change."""
    current = study.model_dump(mode="json", exclude={"trials"}) | {"data": prints}
    defaults = vars(study.make_model({}))
    current["defaults of the model"] = json.loads(json.dumps(defaults))  # as the file has it
    before = search.user_attrs.get("study")
    if before is None:
        search.set_user_attr("study", current)
    elif before != current:
        changed = [name for name in current if current[name] != before.get(name)]
        raise SettingError(
            f"{file} was made by a different study: {', '.join(changed)} changed",
            hint="only `trials` may change; choose another --out, or delete the file",
        )


def _queue_defaults(study: Study, search: optuna.Study) -> None:
    """Mark running trials as failed, and queue the defaults unless they were tried."""
    from optuna.trial import TrialState

    for stopped in search.get_trials(states=(TrialState.RUNNING,)):
        search.tell(stopped.number, state=TrialState.FAIL)
    waiting = search.get_trials(states=(TrialState.WAITING,))
    has_default = any(attempt.is_default for attempt in _list_attempts(search))
    if not has_default and not any(trial.user_attrs.get("is_default") for trial in waiting):
        search.enqueue_trial(study.start, user_attrs={"is_default": True})


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Optuna's log and warnings, and those of collapsing codes."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.simplefilter("ignore", CodeCollapse)
            yield
    finally:
        optuna.logging.set_verbosity(before)
