"""Run experiments in one or several processes, and write a file for each finished run.

A run that has a file is never repeated; one that was interrupted leaves nothing.

OUT/NAME/runs/KEY.parquet     a finished run: the hits of each user; in the metadata, as JSON,
                              settings, seed, versions, machine, times and metrics
OUT/NAME/results.parquet      all metrics in one table, in the order of the plan; also .csv
OUT/NAME/results.md           means over splits of a few metrics
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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from llvmlite.binding import get_host_cpu_name
from threadpoolctl import threadpool_limits

import coldhash as ch
from coldhash import evaluate
from coldhash.errors import ColdhashError, DataError, SettingError
from coldhash.evaluate import Comparison, Interval, Judgement, Trial, UserHits
from coldhash.evaluate.metrics import KS
from coldhash.files import lock_file, replace_file, writing
from coldhash.lab.experiment import Experiment, Question, Run
from coldhash.lab.printed import METHODS
from coldhash.registry import settings_from
from coldhash.render import write_rows

Row = dict[str, Any]  # JSON
LoggedTies = Literal["expected", "optimistic"]

_FACTS = b"coldhash"  # the key of the metadata
_QUESTION = ("protocol", "shots", "oracle", "score", "popularity")
_MODEL = ("dataset", "label", "settings", "train_share", "user_ratings", *_QUESTION)
_SHOWN = ("accuracy@10", "ndcg@10", "mrr", "coverage@10")  # in Markdown
_NESTED = ("metrics", "objective", "fit_parts", "stamp", "users_file")  # not in a table
_LOGGED_KS = (5, 10, 20, 50)  # for which hits are logged user by user

Source = Path | ch.Dataset | None  # the folder of known data sets, or one's own
_source: Source = None  # in a worker process
RunProgress = Callable[[int, int, str], None]  # runs done, runs in all, the last run


def ignore_progress(done: float, total: int, last: str = "") -> None:
    """Show nothing."""


def run_experiment(
    experiment: Experiment,
    data: Source,
    out: Path,
    jobs: int = 1,
    progress: RunProgress = ignore_progress,
) -> Results:
    """Run what has not been run yet.

    Parameters
    ----------
    experiment
        What to run.
    data
        The folder of the data sets; None if only `sample` is used. A data set of your own takes the
        place of those that the experiment names.
    out
        The folder for the files of runs.
    jobs
        Number of processes.
    progress
        Called with runs done, runs in all, and a description of the last run.

    Returns
    -------
    Results
        Of all runs, those of earlier calls included.

    Raises
    ------
    SettingError
        If the experiment is invalid or a run fails; what was finished is kept.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> plan = Experiment(name="one", splits=1, models=[{"model": "popularity"}])  # on the sample
    >>> with TemporaryDirectory() as folder:
    ...     found = run_experiment(plan, None, Path(folder))
    >>> 0 < found.mean("accuracy@10") < 1
    True
    """
    if jobs < 1:
        raise SettingError(f"jobs={jobs}", hint="at least 1")
    own = data if isinstance(data, ch.Dataset) else None
    runs = experiment.runs(own.name if own else None)
    folder, suffix = out / experiment.name, f"-{own.fingerprint}" if own else ""
    files = {run: folder / "runs" / f"{run.key}{suffix}.parquet" for run in runs}
    busy = f"{folder}: another process is running this experiment"
    with lock_file(folder / ".lock", busy):
        with writing(folder):
            (folder / "runs").mkdir(exist_ok=True)
        missing = [run for run in runs if not files[run].exists()]
        done = len(runs) - len(missing)
        progress(done, len(runs), "")
        outcomes = _execute_all(missing, data, 1 if experiment.timed else jobs)
        for number, (run, outcome) in enumerate(outcomes, done + 1):
            write_run(files[run], *outcome)
            progress(number, len(runs), _describe(run))
        rows = list(read_runs(files.values()))
        write_tables(rows, folder)
    return Results([row | json.loads(row["settings"]) for row in rows])


def _describe(run: Run) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in json.loads(run.settings).items())
    return f"{run.label}, {run.dataset}, split {run.split}" + (f", {settings}" if settings else "")


Outcome = tuple[Row, list[Row], pa.Table]  # what `write_run` takes


def _execute_all(runs: list[Run], data: Source, jobs: int) -> Iterator[tuple[Run, Outcome]]:
    """Execute runs, here or in processes of their own, and yield each as it ends."""
    if jobs == 1:
        for run in runs:
            yield run, _execute(run, data)
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    context = multiprocessing.get_context("spawn")  # a forked process cannot use numba's threads
    with ProcessPoolExecutor(jobs, context, _start_worker, (threads, data)) as pool:
        waiting = {pool.submit(_execute_in_worker, run): run for run in runs}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _start_worker(threads: int, source: Source) -> None:
    global _source
    _source = source
    numba.set_num_threads(min(threads, numba.get_num_threads()))
    threading.Thread(target=_exit_with_parent, daemon=True).start()  # which may be killed


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _execute_in_worker(run: Run) -> Outcome:
    return _execute(run, _source)  # sent once, not with every run


def _execute(run: Run, data: Source) -> Outcome:
    """Fit one model and answer all questions of the run."""
    try:
        every, cold, draw = _read_split(run.dataset, run.split, run.user_ratings, data)
        n_users = round(len(every.ratings.users) * run.train_share)
        # users are in no special order
        train = every.of_users(np.arange(n_users)) if run.train_share < 1 else every
        model, seconds = _fit(run, train)
        judgements, tables = [], []
        for question in [each for each in run.questions if _answers(model, each)]:
            start = time.perf_counter()
            with threadpool_limits(1, "blas"):  # the same sums in any process
                about = {"protocol": question.protocol, "n_given": question.shots}
                trial = draw(**about, oracle=question.oracle, order=run.order)
                judged = evaluate.judge(
                    evaluate.scorer(model, question.score, popularity=question.popularity), trial
                )
            passed = time.perf_counter() - start
            found = {"given_by": trial.order, "metrics": judged.metrics, "judge_seconds": passed}
            judgements.append(asdict(question) | found)
            tables.append(_user_table(question, list(cold.ratings.users), judged))
        if not tables:
            raise SettingError("the model answers no question", hint='scores = ["real"]')
    except ColdhashError as error:
        hint = "what was finished is kept; mend it, and start again to go on"
        raise SettingError(f"{_describe(run)}: {error}", hint=hint) from None
    facts = {
        **{name: value for name, value in asdict(run).items() if name != "questions"},
        "train_users": n_users,
        "cold_users": len(cold.ratings.users),
        "train_ratings": len(train.ratings),
        "n_bits": model.settings.get("n_bits"),
        "bytes_per_item": model.bytes_per_item,
        "profiles": len(np.unique(model.encode(trial.people, unknown="ignore").vectors, axis=0)),
        "objective": model.report.get("objective"),
        "fit_parts": model.report.get("seconds"),
        "fit_seconds": seconds,
        "stamp": stamp(),
    }
    return facts, judgements, pa.concat_tables(tables)


def _answers(model: ch.Recommender, question: Question) -> bool:
    """Return whether a model has what a question is about: codes, levels."""
    if question.score == "hamming" and not model.has_codes:
        return False
    return question.popularity == 1 or model.items.levels is not None


def _fit(run: Run, train: ch.Dataset) -> tuple[ch.Recommender, float]:
    settings = settings_from(METHODS[run.model], json.loads(run.settings))
    threads = numba.get_num_threads()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of codes that collapse: the results show it
        try:
            if run.timed:
                numba.set_num_threads(1)
                _compile(run.model)
            start = time.perf_counter()
            model = settings.fit(train, seed=run.split)
            return model, time.perf_counter() - start
        finally:
            numba.set_num_threads(threads)


@functools.cache
def _compile(model: str) -> None:
    """Fit a tiny data set, so that compilation is not timed."""
    train, _ = ch.split_cold_users(ch.read("sample", n_users=300, n_items=120), seed=0)
    METHODS[model]().fit(train)


def _user_table(question: Question, user_ids: list[object], judged: Judgement) -> pa.Table:
    columns: Row = {name: [value] * len(user_ids) for name, value in asdict(question).items()}
    columns |= {"user_id": user_ids, "pairs": judged.pairs.astype(np.int32)}
    for k in _LOGGED_KS:
        columns[f"hits@{k}"] = judged.hits[:, KS.index(k)].astype(np.float32)
        columns[f"optimistic@{k}"] = judged.hits_optimistic[:, KS.index(k)].astype(np.float32)
    return pa.table(columns)


_read = functools.lru_cache(maxsize=2)(ch.read)


@functools.lru_cache(maxsize=2)
def _read_split(
    name: str, seed: int, user_ratings: int, source: Source
) -> tuple[ch.Dataset, ch.Dataset, Callable[..., Trial]]:
    """Return the users to fit on, the cold ones, and what makes each of their trials once."""
    data = source if isinstance(source, ch.Dataset) else _read(name, source)
    train, cold = ch.split_cold_users(data, seed=seed, described=True)
    if user_ratings:
        train, _ = ch.split_first_ratings(train, user_ratings, seed, "random")
    return (
        train,
        cold,
        functools.cache(functools.partial(evaluate.make_trial, train, cold, seed=seed)),
    )


@functools.cache
def stamp() -> Row:
    """Return versions and the kind of machine, without its name."""
    packages = ("coldhash", "numpy", "scipy", "numba", "pyarrow")
    return {
        **{name: version(name) for name in packages},
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": get_host_cpu_name(),
        "cores": os.cpu_count(),
    }


def write_run(path: Path, facts: Row, judgements: list[Row], users: pa.Table) -> None:
    """Write the file of a finished run, in one step."""
    metadata = {_FACTS: json.dumps(facts | {"judgements": judgements}, ensure_ascii=False)}
    with replace_file(path) as file:
        pq.write_table(users.replace_schema_metadata(metadata), file)


def read_runs(paths: Iterable[Path]) -> Iterator[Row]:
    """Read one row for each run and question that it answered."""
    for path in paths:
        facts = json.loads(pq.read_schema(path).metadata[_FACTS])
        for judged in facts.pop("judgements"):
            yield facts | judged | judged["metrics"] | {"users_file": path}


def write_tables(rows: list[Row], folder: Path) -> None:
    """Write the table of all metrics; in Markdown, of the means over splits of a few."""
    plain = [{n: value for n, value in row.items() if n not in _NESTED} for row in rows]
    with replace_file(folder / "results.parquet") as file:
        pq.write_table(pa.Table.from_pylist(plain), file)
    write_rows(plain, folder / "results.csv")
    means = [
        dict(zip(_MODEL, model, strict=True))
        | {"splits": len(part.rows)}
        | {name: part.mean(name) for name in _SHOWN}
        for model, part in Results(rows).groups(*_MODEL)
    ]
    write_rows(means, folder / "results.md")


@dataclass(frozen=True, eq=False)
class Results:
    """Rows of metrics, one for each run and question.

    Parameters
    ----------
    rows
        Metrics, settings and the description of the run, by name.

    Examples
    --------
    >>> found = Results([{"label": "a", "mrr": 0.5}, {"label": "b", "mrr": 0.25}])
    >>> found.values("label"), found.where(label="b").mean("mrr")
    (['a', 'b'], 0.25)
    """

    rows: list[Row]

    def where(self, **wanted: object) -> Results:
        """Select the rows that have these values.

        Parameters
        ----------
        **wanted
            Values by column; None also matches rows without the column.

        Returns
        -------
        Results
            The rows that match all of them; there may be none.
        """
        return Results(
            [row for row in self.rows if all(row.get(n) == value for n, value in wanted.items())]
        )

    def values(self, name: str) -> list[object]:
        """List the distinct values of a column in order of appearance.

        Parameters
        ----------
        name
            The column.

        Returns
        -------
        list of object
            The values; None for rows without the column.
        """
        return list(dict.fromkeys(row.get(name) for row in self.rows))

    def by(self, name: str) -> Iterator[tuple[object, Results]]:
        """Iterate over the values of a column and the rows that have them.

        Parameters
        ----------
        name
            The column.

        Yields
        ------
        value : object
            A distinct value, in order of appearance.
        rows : Results
            The rows that have it.
        """
        for (value,), part in self.groups(name):
            yield value, part

    def groups(self, *names: str) -> Iterator[tuple[tuple[object, ...], Results]]:
        """Iterate over the values of several columns and the rows that have them.

        Parameters
        ----------
        *names
            The columns.

        Yields
        ------
        values : tuple of object
            Distinct values of the columns, in order of appearance.
        rows : Results
            The rows that have them.
        """
        found: dict[tuple[object, ...], list[Row]] = {}
        for row in self.rows:
            found.setdefault(tuple(row.get(name) for name in names), []).append(row)
        for values, rows in found.items():
            yield values, Results(rows)

    def mean(self, metric: str) -> float:
        """Compute the mean of a metric over the rows.

        Parameters
        ----------
        metric
            The column, such as "accuracy@10".

        Returns
        -------
        float

        Raises
        ------
        DataError
            There are no rows.
        KeyError
            A row does not have the metric.
        """
        if not self.rows:
            raise DataError(f"no run has {metric}")
        return float(np.mean([row[metric] for row in self.rows]))

    def hits(self, k: int, ties: LoggedTies = "expected") -> list[UserHits]:
        """Read the hits of each user, split by split.

        Parameters
        ----------
        k
            Length of the lists, one that the log has hits for.
        ties
            "expected", or "optimistic" to count ties as hits.

        Returns
        -------
        list of UserHits
            One for each row, in the order of splits.

        Raises
        ------
        KeyError
            The log has no hits for k.
        """
        column = f"{'hits' if ties == 'expected' else ties}@{k}"
        return [
            _read_hits(row["users_file"], column, tuple(row[name] for name in _QUESTION))
            for row in sorted(self.rows, key=lambda row: row["split"])
        ]

    def interval(self, k: int) -> Interval:
        """Compute the mean Accuracy@k with its interval over users.

        Parameters
        ----------
        k
            Length of the lists, one that the log has hits for.

        Returns
        -------
        Interval

        Raises
        ------
        DataError
            There are no rows, or too few users.
        """
        return evaluate.interval(self.hits(k))

    def compare(self, other: Results, k: int, ties: LoggedTies = "expected") -> Comparison:
        """Compare with another method on the splits that both have.

        Parameters
        ----------
        other
            The rows of the other method.
        k
            Length of the lists, one that the log has hits for.
        ties
            "expected", or "optimistic" to count ties as hits.

        Returns
        -------
        Comparison
            This method minus the other one.

        Raises
        ------
        DataError
            No split is in both, there are too few users, or the users or pairs differ.
        """
        both = set(self.values("split")) & set(other.values("split"))
        first, second = (
            Results([row for row in side.rows if row["split"] in both]).hits(k, ties)
            for side in (self, other)
        )
        return evaluate.compare(first, second)


@functools.lru_cache(maxsize=4096)
def _read_hits(path: Path, column: str, question: tuple[object, ...]) -> UserHits:
    table = pq.read_table(path)
    for name, value in zip(_QUESTION, question, strict=True):
        table = table.filter(pc.equal(table.column(name), value))
    return UserHits(
        np.array(table.column("user_id").to_pylist(), dtype=object),
        table.column(column).to_numpy().astype(np.float64),
        table.column("pairs").to_numpy(),
    )
