"""Running: from a list of runs to results on disk, in one or several processes.

A run that is done is in the journal and is never done again; one that was cut off leaves nothing.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import platform
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from importlib.metadata import version
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from coldhash.data.dataset import Dataset
from coldhash.data.sources import read
from coldhash.data.splits import split_cold_users
from coldhash.errors import ColdhashError, SettingError
from coldhash.evaluate.judge import KS, judge
from coldhash.evaluate.protocol import Trial, make_trial, scorer
from coldhash.lab.experiment import Experiment, Question, Run
from coldhash.lab.printed import METHODS
from coldhash.lab.results_log import Journal
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import settings_from

USER_KS = (5, 10, 20, 50)  # for which hits are kept user by user
Progress = Callable[[int, int, str], None]  # runs done, of how many, what was last


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run found: a line of the journal, and the hits of each user."""

    line: dict[str, Any]
    users: pa.Table


def run_experiment(
    experiment: Experiment,
    data: Path | None,
    out: Path,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Journal:
    """Do what is not yet done, and give the journal of everything.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from coldhash.lab.results import Results
    >>> plan = Experiment(name="one", splits=1, models=[{"model": "popularity"}])  # on the sample
    >>> with TemporaryDirectory() as folder:
    ...     journal = run_experiment(plan, None, Path(folder))
    ...     found = Results.of(journal, [run.key for run in plan.runs()])
    >>> 0 < found.mean("accuracy@10") < 1
    True
    """
    if jobs < 1:
        raise SettingError(f"jobs={jobs}", hint="at least 1")
    runs = experiment.runs()
    with Journal.open(out, experiment.name) as journal:
        todo = [run for run in runs if run.key not in journal]
        done, failures = len(runs) - len(todo), []
        if progress is not None:
            progress(done, len(runs), "")
        for run, outcome in _outcomes(todo, data, 1 if experiment.timed else jobs):
            if isinstance(outcome, ColdhashError):
                failures.append(f"{describe(run)}: {outcome}")
            else:
                journal.add(run.key, outcome.line, outcome.users)
            done += 1
            if progress is not None:
                progress(done, len(runs), describe(run))
        journal.finish([run.key for run in runs])
    if failures:
        raise SettingError(
            f"{experiment.name}: {len(failures)} of {len(runs)} runs failed; {failures[0]}",
            hint="what is done is kept; start again to try the others",
        )
    return journal


def describe(run: Run) -> str:
    """Name a run for people."""
    settings = ", ".join(f"{name} {value}" for name, value in json.loads(run.settings).items())
    return f"{run.label}, {run.dataset}, split {run.split}" + (f", {settings}" if settings else "")


def _outcomes(
    runs: list[Run], data: Path | None, jobs: int
) -> Iterator[tuple[Run, Outcome | ColdhashError]]:
    """Run them, here or in processes of their own; gives each as it ends."""
    if jobs == 1:
        for run in runs:
            yield run, _attempt(run, data)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    context = multiprocessing.get_context("spawn")  # a forked process cannot use numba's threads
    with ProcessPoolExecutor(jobs, context, _start_worker, (threads,)) as pool:
        waiting = {pool.submit(_attempt, run, data): run for run in runs}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _start_worker(threads: int) -> None:
    numba.set_num_threads(min(threads, numba.get_num_threads()))
    parent = multiprocessing.parent_process()
    if parent is not None:  # killed, it cannot tell its workers to stop
        threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()


def _die_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _attempt(run: Run, data: Path | None) -> Outcome | ColdhashError:
    try:
        return execute(run, data)
    except ColdhashError as error:
        return error


def execute(run: Run, data: Path | None) -> Outcome:
    """Fit one model and ask it everything."""
    train, _ = _split(run.dataset, run.cold_share, run.split, data)
    model, seconds = _fit(run, _first(train, run.train_share))
    with threadpool_limits(1, "blas"):  # sums in one order, in any process
        judgements, tables = _ask(run, model, data)
    line = {
        **{name: value for name, value in asdict(run).items() if name != "questions"},
        "settings": json.loads(run.settings),
        "train_users": round(len(train.ratings.users) * run.train_share),
        "train_ratings": len(_first(train, run.train_share).ratings),
        "n_bits": model.settings.get("n_bits"),
        "bytes_per_item": model.bytes_per_item,
        "judgements": judgements,
        "objective": model.report.get("objective"),
        "fit_parts": model.report.get("seconds"),
        "fit_seconds": seconds,
        "stamp": stamp(),
    }
    return Outcome(line, pa.concat_tables(tables))


def _ask(
    run: Run, model: Recommender, data: Path | None
) -> tuple[list[dict[str, Any]], list[pa.Table]]:
    """Judge a fitted model in every way that is asked and that it knows."""
    judgements, tables = [], []
    for question in run.questions:
        if question.score == "hamming" and not model.has_codes:
            continue
        start = time.perf_counter()
        trial = _trial(run.dataset, run.cold_share, run.split, question.protocol, question.shots,
                       question.oracle, data)  # fmt: skip
        judged = judge(scorer(model, question.score), trial)
        judgements.append(
            {**asdict(question), "metrics": judged.metrics, "seconds": time.perf_counter() - start}
        )
        hits, optimistic = judged.hits, judged.hits_optimistic
        user_ids = _split(run.dataset, run.cold_share, run.split, data)[1].ratings.users
        tables.append(_user_table(question, user_ids, judged.pairs, hits, optimistic))
    return judgements, tables


def _fit(run: Run, train: Dataset) -> tuple[Recommender, float]:
    settings = settings_from(METHODS[run.model], json.loads(run.settings))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of codes that collapse: the results show it
        with _one_thread() if run.timed else nullcontext():
            if run.timed:
                _compile(run.model)
            start = time.perf_counter()
            model = settings.fit(train, seed=run.split)
            return model, time.perf_counter() - start


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(threads)


@functools.cache
def _compile(model: str) -> None:
    """Fit on next to nothing, so that no time goes to the compiler."""
    train, _ = split_cold_users(read("sample", n_users=300, n_items=120), seed=0)
    METHODS[model]().fit(train)


def _user_table(
    question: Question,
    user_ids: Any,
    pairs: np.ndarray,
    hits: np.ndarray,
    optimistic: np.ndarray,
) -> pa.Table:
    columns = [KS.index(k) for k in USER_KS]
    n = len(pairs)
    return pa.table(
        {name: pa.repeat(pa.scalar(value), n) for name, value in asdict(question).items()}
        | {"user_id": list(user_ids), "pairs": pairs.astype(np.int32)}
        | {f"hits@{KS[c]}": hits[:, c].astype(np.float32) for c in columns}
        | {f"optimistic@{KS[c]}": optimistic[:, c].astype(np.float32) for c in columns}
    )


@functools.lru_cache(maxsize=2)
def _data(name: str, folder: Path | None) -> Dataset:
    return read(name, folder)


@functools.lru_cache(maxsize=2)
def _split(name: str, share: float, seed: int, folder: Path | None) -> tuple[Dataset, Dataset]:
    return split_cold_users(_data(name, folder), share, seed)


@functools.lru_cache(maxsize=16)
def _trial(
    name: str,
    share: float,
    seed: int,
    protocol: str,
    shots: int,
    oracle: bool,
    folder: Path | None,
) -> Trial:
    train, cold = _split(name, share, seed, folder)
    return make_trial(train, cold, protocol=protocol, n_given=shots, oracle=oracle, seed=seed)


def _first(train: Dataset, share: float) -> Dataset:
    """Give the first of the training users; they are in no special order."""
    n_users = len(train.ratings.users)
    return train if share == 1 else train.of_users(np.arange(round(n_users * share)))


@functools.cache
def stamp() -> dict[str, Any]:
    """Say which versions on what machine; nothing that names it."""
    packages = ("coldhash", "numpy", "scipy", "numba", "pyarrow")
    return {
        **{name: version(name) for name in packages},
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
