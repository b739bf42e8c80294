"""Partitions on a Dask cluster, which schedules tasks and runs them again if a worker is lost.

The values of a few partitions are one future, made by a task from other values and from what is
sent with it: every task takes the scheduler and its worker some milliseconds. User codes come back
to the client after every round, so that a lost worker costs at most a round.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import version
from itertools import count, pairwise
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import numba
import numpy as np

import coldhash
from coldhash.arrays.threads import one_blas_thread
from coldhash.data.dataset import UserRecords
from coldhash.errors import SettingError, SourceError, WorkerError
from coldhash.partitions import Partitions, PerPartition, Stored, T, add_up, loaded

try:
    import dask
    from dask.sizeof import sizeof
    from distributed import Client, Future, KilledWorker, LocalCluster, get_worker, wait
    from distributed.client import ClosedClientError
    from distributed.comm.core import CommClosedError
except ImportError:
    raise SettingError("Dask is not installed", hint="pip install 'coldhash[dask]'") from None

POLL_SECONDS = 2.0  # between looks at the state of workers
PATIENCE_SECONDS = 60.0  # that nothing may happen while workers are gone or paused
PER_TASK = 4  # partitions: their results wait in the memory of a worker until they are added up
ONE_AT_A_TIME = threading.Lock()  # functions use all threads of a worker themselves
NO_WARNING = {"distributed.admin.large-graph-warning-threshold": "1TB"}  # sent on purpose, once
LOCAL = {  # for workers that do nothing else
    # freed memory is used again: Dask has it returned, and pages are then made for every array
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**31,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**30,
    "distributed.scheduler.work-stealing": False,  # partitions are spread evenly
}
LOST = (CancelledError, ClosedClientError, CommClosedError)
MORE_MEMORY = "give workers more memory, or prepare the data with fewer users in a partition"


@dataclass(frozen=True, eq=False)
class _Made:
    """Values of partitions, and results beside them; Dask does not look for futures in them."""

    kept: list[Any]
    results: list[Any] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class _Results(Iterable[Any]):
    """Results of a function for every partition, which are on the workers."""

    partitions: DaskPartitions
    made: list[Future[_Made]]

    def __iter__(self) -> Iterator[Any]:
        """Yield the results in order, each released on its worker once it is here."""
        futures = self.partitions.submit(_results_of, self.made)
        self.made.clear()
        while futures:
            yield from self.partitions.first_result(futures)
            del futures[0]


class DaskPartitions(Partitions):
    """Partitions whose values are futures.

    Consecutive partitions are made on one worker, where the task of their home ran: Dask runs tasks
    where most of their values are. No task names a worker: Dask does not run it again if that
    worker was the only one.
    """

    def __init__(self, client: Client, records: Sequence[UserRecords | Stored]) -> None:
        check_workers(client)
        self._client, self._id, self._numbers = client, uuid4().hex[:12], count()
        with translate_dask_errors():
            n_threads = sum(client.nthreads().values())
        self._n_parts, n_homes = len(records), max(min(n_threads, len(records)), 1)
        self._homes = self.submit(_open, range(n_homes), [_Made([])] * n_homes)
        ends = [-(-home * len(records) // n_homes) for home in range(n_homes + 1)]
        self._tasks = [  # the home of each, and its partitions
            (home, slice(first, min(first + PER_TASK, end)))
            for home, (begin, end) in enumerate(pairwise(ends))
            for first in range(begin, end, PER_TASK)
        ]
        self.records = self.scatter(records)

    def __len__(self) -> int:
        return self._n_parts

    def run(
        self, function: Callable[..., Any], *values: PerPartition[Any], keep: bool = True
    ) -> tuple[PerPartition[Any], Iterable[Any]]:
        """Apply a function to the values of every partition."""
        sent = self.submit(_open, self._homes, [_Made([function, keep])] * len(self._homes))
        functions = [sent[home] for home, _ in self._tasks]
        made = self.submit(_apply, functions, *(value.parts for value in values))
        return PerPartition(made[:] if keep else []), _Results(self, made)

    def add_up(self, results: Iterable[T]) -> T:
        """Add up results in order: the sum goes from worker to worker, the results stay there."""
        made = cast("_Results", results).made
        total: list[Any] = [None]
        for at, some in enumerate(made, 1):
            total = self.submit(_add, [at == len(made)], total, [some])
        return self.first_result(total)  # type: ignore[no-any-return]

    def scatter(self, values: Sequence[T | Stored]) -> PerPartition[T]:
        """Send every partition one of some values, loaded or not."""
        homes = [self._homes[home] for home, _ in self._tasks]
        sent = [_Made(list(values[some])) for _, some in self._tasks]
        return PerPartition(self.submit(_open, homes, sent))

    def submit(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Future[Any]]:
        """Submit tasks, all at once: Dask spreads those that need no other over idle workers.

        Every task is a group of its own, because Dask queues large groups and fills one worker
        first.
        """
        name = f"coldhash{function.__name__}-{self._id}"
        columns = [list(argument) for argument in arguments]
        keys = [(f"{name}-{next(self._numbers)}", 0) for _ in columns[0]]
        task = partial(run_checked, own_versions(), function)
        with dask.config.set(NO_WARNING), translate_dask_errors():
            return self._client.map(task, *columns, key=keys, pure=False)

    def first_result(self, futures: list[Future[Any]]) -> Any:
        """Wait for the first of some futures, as long as a worker may finish it."""
        n_done, since = -1, time.monotonic()
        while True:
            with translate_dask_errors(), contextlib.suppress(TimeoutError):
                wait(futures[0], timeout=POLL_SECONDS)
                return futures[0].result(timeout=PATIENCE_SECONDS)
            with translate_dask_errors():
                workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
            now_done = sum(future.status != "pending" for future in futures)
            if now_done != n_done or any(worker["status"] == "running" for worker in workers):
                n_done, since = now_done, time.monotonic()
            elif time.monotonic() - since > PATIENCE_SECONDS:
                message = f"no worker has done anything for {PATIENCE_SECONDS:.0f} seconds"
                raise WorkerError(message, hint=MORE_MEMORY)


@contextmanager
def translate_dask_errors() -> Iterator[None]:
    """Raise a `WorkerError` where workers or the scheduler of a cluster are lost."""
    try:
        yield
    except KilledWorker as error:
        message = f"workers died repeatedly over one partition ({error.last_worker})"
        raise WorkerError(message, hint=f"of too little memory? {MORE_MEMORY}") from error
    except LOST as error:
        hint = "start the scheduler and its workers again, then this command"
        raise WorkerError("the connection to the Dask scheduler was lost", hint=hint) from error


@cache
def own_versions() -> str:
    """Return what a worker must have, too: the code of coldhash and the libraries it runs on."""
    folder, digest = Path(coldhash.__file__).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    own = f"coldhash {coldhash.__version__} (code {digest.hexdigest()[:8]})"
    return ", ".join([own, *(f"{name} {version(name)}" for name in ("numba", "numpy", "scipy"))])


def check_workers(client: Client) -> None:
    """Raise an error if a worker runs other code than this process: results could differ."""
    with translate_dask_errors():
        found = client.run(own_versions, on_error="return")
    for worker, theirs in found.items():
        _compare(worker, theirs, own_versions())


def run_checked(wanted: str, function: Callable[..., T], *arguments: object) -> T:
    """Run a task in a worker; raise an error if it runs other code: it may have joined late."""
    _compare(get_worker().address, own_versions(), wanted)
    return function(*arguments)


def _compare(worker: str, theirs: str | Exception, own: str) -> None:
    if theirs != own:  # other versions, or an exception
        hint = "install the same coldhash and the same libraries on every worker"
        raise WorkerError(f"worker {worker} has {theirs}; here is {own}", hint=hint)


@contextmanager
def connect(address: str) -> Iterator[Client]:
    """Connect to the cluster at an address; `local` starts one, with a worker for each core."""
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # it becomes a WorkerError
    if address == "local":
        with (
            dask.config.set(LOCAL),
            LocalCluster(threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster, direct_to_workers=True) as client,
        ):
            yield client
        return
    try:
        client = Client(address, timeout=20)
    except (OSError, ValueError) as error:
        raise SourceError(f"no Dask scheduler at {address}: {error}") from None
    with client:
        yield client


def _open(_home: object, sent: _Made) -> list[Any]:
    return [loaded(value) for value in sent.kept]


def _apply(sent: list[Any], *values: list[Any] | _Made) -> _Made:
    """Apply a function in a worker, with the threads that the worker has."""
    threads = min(get_worker().state.nthreads, numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    function, keep = sent
    columns = [value.kept if isinstance(value, _Made) else value for value in values]
    with ONE_AT_A_TIME, one_blas_thread():
        numba.set_num_threads(max(threads, 1))
        found = [function(*map(_aligned, row)) for row in zip(*columns, strict=True)]
    return _Made(*map(list, zip(*found, strict=True))) if keep else _Made([], found)


def _aligned(value: Any) -> Any:
    """Return a value; an array of a message may be at an odd address, where products round off."""
    return np.require(value, requirements="A") if isinstance(value, np.ndarray) else value


def _add(last: bool, total: Any, made: _Made) -> Any:
    return add_up(made.results if total is None else [total, *made.results], typed=last)


def _results_of(made: _Made) -> list[Any]:
    return made.results


@sizeof.register(_Made)  # type: ignore[untyped-decorator, no-untyped-call]
@sizeof.register(UserRecords)  # type: ignore[untyped-decorator, no-untyped-call]
def _n_bytes(value: object) -> int:
    """Return the size of a value, by which Dask decides what to move: it knows no dataclasses."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, list | tuple):
        return sum(map(_n_bytes, value))
    entries = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    return sum(map(_n_bytes, entries.values()))
