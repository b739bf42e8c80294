"""Partitions on a Dask cluster, which schedules, moves, spills and repeats; nothing here does.

A value of a partition is a future, made by a task from other values and from what is sent with it.
So when a worker is lost, Dask makes its values again; user codes come back to the client after
every round, so that this never reaches further back than one round.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import numba
import numpy as np
from threadpoolctl import threadpool_limits

import coldhash
from coldhash.data.dataset import UserRecords
from coldhash.errors import SettingError, SourceError, WorkerError
from coldhash.partitions import Partitions, PerPartition, Stored, T, loaded

try:
    import dask
    from distributed import Client, Future, KilledWorker, LocalCluster, get_worker, wait
    from distributed.client import ClosedClientError
    from distributed.comm.core import CommClosedError
except ImportError:
    raise SettingError("Dask is not installed", hint="pip install 'coldhash[dask]'") from None

LOOK = 2.0  # seconds between looks at workers while waiting
PATIENCE = 60.0  # seconds that nothing may happen while workers are gone or paused
ONE_AT_A_TIME = threading.Lock()  # steps use all threads of a worker themselves
SILENT = {"distributed.admin.large-graph-warning-threshold": "1TB"}  # one copy is sent, knowingly
LOST = (CancelledError, ClosedClientError, CommClosedError)
MORE_MEMORY = "give workers more memory, or prepare the data with fewer users in a partition"


@dataclass(frozen=True, eq=False)
class _Payload:
    """What is sent along with tasks, once; Dask must not look for futures in it."""

    content: Any


class DaskPartitions(Partitions):
    """Partitions whose values are futures."""

    def __init__(
        self,
        client: Client,
        records: Sequence[UserRecords | Stored],
        patience: float = PATIENCE,
    ) -> None:
        if not isinstance(client, Client) or client.asynchronous:
            raise SettingError(
                f"on={client!r} is no place for a fit", hint="a Client that is not asynchronous"
            )
        check_workers(client)
        self._client, self._patience = client, patience
        self._name, self._numbers = f"coldhash-{uuid4().hex[:12]}", count()
        self.records = PerPartition(self.scatter(records).parts)

    def run(
        self, function: Callable[..., Any], *values: PerPartition[Any], n_kept: int
    ) -> tuple[tuple[PerPartition[Any], ...], Iterator[Any]]:
        """Apply a function to the values of every partition."""
        sent = self._submit(_open, _Payload(function))
        kept: tuple[PerPartition[Any], ...] = tuple(PerPartition([]) for _ in range(n_kept))
        results = []
        for futures in zip(*(value.parts for value in values), strict=True):
            job = self._submit(_work, sent, *futures)
            for at, each in enumerate(kept):
                each.parts.append(self._submit(_pick, job, at))
            results.append(self._submit(_pick, job, n_kept) if n_kept else job)
        return kept, self._in_order(results)

    def scatter(self, values: Sequence[T]) -> PerPartition[T]:
        """Give every partition one of some values."""
        return PerPartition([self._submit(_open, _Payload(value)) for value in values])

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        # no task names a worker: Dask does not run it again if that worker was the only one
        key = f"{self._name}{function.__name__}-{next(self._numbers)}"
        with dask.config.set(SILENT), told_of_loss():
            return self._client.submit(function, *arguments, key=key, pure=False)

    def _in_order(self, futures: list[Future[Any]]) -> Iterator[Any]:
        futures.reverse()
        while futures:
            result = self._wait(futures)
            futures.pop()  # forgotten at once: sums may be large
            yield result

    def _wait(self, futures: list[Future[Any]]) -> Any:
        """Wait for the last of some futures, as long as there is anybody to wait for."""
        n_done, since = -1, time.monotonic()
        while True:
            try:
                with told_of_loss():
                    wait(futures[-1], timeout=LOOK)
                    return futures[-1].result(timeout=max(self._patience, PATIENCE))
            except TimeoutError:
                pass
            now_done = sum(future.status != "pending" for future in futures)
            if now_done != n_done or self._anybody_works():
                n_done, since = now_done, time.monotonic()
            elif time.monotonic() - since > self._patience:
                raise WorkerError(
                    f"for {self._patience:.0f} seconds no worker has done anything: "
                    "they are gone, or paused for want of memory",
                    hint=MORE_MEMORY,
                )

    def _anybody_works(self) -> bool:
        with told_of_loss():
            workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return any(worker["status"] == "running" for worker in workers)


@contextmanager
def told_of_loss() -> Iterator[None]:
    """Raise an error of ours where workers or the scheduler of a cluster are lost."""
    try:
        yield
    except KilledWorker as error:
        raise WorkerError(
            f"workers died again and again over one partition ({error.last_worker})",
            hint=f"most likely of too little memory: {MORE_MEMORY}",
        ) from error
    except LOST as error:
        raise WorkerError(
            "the connection to the Dask scheduler was lost",
            hint="start the scheduler and its workers again, then this command",
        ) from error


def check_workers(client: Any) -> None:
    """Raise an error if a worker runs other code than this process, which gives other bits."""

    def versions() -> dict[str, str]:  # sent by value: another coldhash may not have it
        from importlib.metadata import version

        import coldhash

        folder = Path(coldhash.__file__).parent
        digest = hashlib.sha256()
        for path in sorted(folder.rglob("*.py")):
            digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
        libraries = {name: version(name) for name in ("numba", "numpy", "scipy")}
        code = f"{coldhash.__version__} (code {digest.hexdigest()[:8]})"
        return {"coldhash": code, **libraries}

    own = versions()
    with told_of_loss():
        found = client.run(versions, on_error="return")
    for worker, theirs in found.items():
        if isinstance(theirs, Exception):
            raise WorkerError(
                f"worker {worker} cannot run coldhash: {type(theirs).__name__}: {theirs}",
                hint=f"install coldhash {coldhash.__version__} on every worker",
            )
        other = [
            f"{name} {theirs[name]}, here {own[name]}" for name in own if theirs[name] != own[name]
        ]
        if other:
            raise WorkerError(
                f"worker {worker} has {'; '.join(other)}",
                hint="install the same versions on every worker and start it again",
            )


@contextmanager
def client_at(address: str) -> Iterator[Any]:
    """Reach a cluster by its address; `local` starts one here, a worker for each core."""
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # our errors say it
    if address == "local":
        options = {"threads_per_worker": 1, "dashboard_address": ":0"}
        # results come from the workers themselves: nothing is between them and us
        with (
            LocalCluster(**options) as cluster,
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


def _open(payload: _Payload) -> Any:
    return loaded(payload.content)


def _work(function: Callable[..., Any], *values: Any) -> Any:
    """Apply a function in a worker, with the threads that the worker has."""
    threads = min(get_worker().state.nthreads, numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    with ONE_AT_A_TIME, threadpool_limits(1, "blas"):
        numba.set_num_threads(max(threads, 1))
        return function(*(_align(value) for value in values))


def _align(value: Any) -> Any:
    """Copy an array that came in a message at an odd address: products of it round differently."""
    return np.require(value, requirements="A") if isinstance(value, np.ndarray) else value


def _pick(made: tuple[Any, ...], at: int) -> Any:
    return made[at]
