"""The file of a study: SQLite through Optuna, for one process at a time.

What was running when a process was killed is marked as failed and queued again.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from coldhash.errors import CodeCollapse, SettingError
from coldhash.files import lock_file
from coldhash.lab.study import Study

if TYPE_CHECKING:
    import optuna

RANDOM_TRIALS = 5  # before Optuna begins to model, and before it prunes


@contextmanager
def opened(study: Study, out: Path) -> Iterator[optuna.Study]:
    """Open or begin the study's file; what was running when it was stopped is put back."""
    import optuna

    file = out / f"{study.model}.sqlite"
    with lock_file(out / f".{study.model}.lock", f"{file}: another process is running this study"):
        storage = optuna.storages.RDBStorage(f"sqlite:///{file}")
        try:
            search = optuna.create_study(
                study_name=study.model,
                storage=storage,
                direction="maximize",
                pruner=optuna.pruners.MedianPruner(n_startup_trials=RANDOM_TRIALS),
                load_if_exists=True,
            )
            _check_same(study, search, file)
            _put_back(study, search)
            yield search
        finally:
            storage.remove_session()
            storage.engine.dispose()


def _check_same(study: Study, search: optuna.Study, file: Path) -> None:
    """Refuse to go on with another study; only `trials` may change."""
    told = study.model_dump(mode="json", exclude={"trials"})
    told["defaults of the model"] = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(study.model_with({})).items()  # type: ignore[call-overload]
    }
    before = search.user_attrs.get("study")
    if before is None:
        search.set_user_attr("study", told)
    elif before != told:
        changed = [name for name in told if told[name] != before.get(name)]
        raise SettingError(
            f"{file} was begun with a different study: {', '.join(changed)} changed",
            hint="only `trials` may change; choose another --out, or delete the file",
        )


def _put_back(study: Study, search: optuna.Study) -> None:
    """Mark what was running as failed and queue it again; see that the defaults come first."""
    from optuna.trial import TrialState

    for stopped in search.get_trials(states=(TrialState.RUNNING,)):
        if not stopped.user_attrs.get("is_default"):
            search.enqueue_trial(stopped.params)
        search.tell(stopped.number, state=TrialState.FAIL)
    begun = [*finished(search), *search.get_trials(states=(TrialState.WAITING,))]
    if not any(trial.user_attrs.get("is_default") for trial in begun):
        search.enqueue_trial(study.start, user_attrs={"is_default": True})


def finished(search: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Give the trials that came to an end of their own, in order."""
    return [
        trial
        for trial in search.get_trials(deepcopy=False)
        if trial.state.name in ("COMPLETE", "PRUNED") or "refused" in trial.user_attrs
    ]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Optuna's log, its notes on experimental parts and collapsing codes off the screen."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.simplefilter("ignore", CodeCollapse)  # a bad setting's value says it all
            yield
    finally:
        optuna.logging.set_verbosity(before)
