"""A data set as a fit over partitions sees it, wherever the partitions are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from coldhash.data.dataset import Dataset
from coldhash.data.ids import Ids
from coldhash.data.plan import FeaturePlan
from coldhash.errors import SettingError
from coldhash.mfdcf.checkpoint import Checkpoint
from coldhash.partitions import InMemory, Partitions, raw_parts
from coldhash.scale.disk import Disk
from coldhash.scale.prepared import Prepared
from coldhash.scale.stored import loaded


@dataclass(frozen=True, eq=False)
class Crowd:
    """Users in partitions, and what is known of everything else."""

    users: Partitions
    n_users: int
    n_ratings: int
    plan: FeaturePlan
    items: pa.Table
    item_ids: Ids
    scale: tuple[float, float]
    last_facts: Callable[[Partitions], dict[str, Any]]  # user ids and ratings, for the model
    checkpoint: Checkpoint | None = None

    def facts(self) -> dict[str, Any]:
        """Give the parts of a `Recommender` that are taken from the data as they are."""
        return {
            "item_ids": self.item_ids,
            "scale": self.scale,
            "item_table": self.items,
        } | self.last_facts(self.users)


@dataclass(frozen=True)
class Memory:
    """All partitions in the memory of this process.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100), on=Memory()).name
    'mfdcf'
    """

    def partitions(self, data: Dataset | Prepared) -> InMemory:
        """Load the partitions."""
        if isinstance(data, Dataset):
            return InMemory(raw_parts(data))
        return InMemory(
            [{name: loaded(one) for name, one in part.items()} for part in data.raw_parts()]
        )


@contextmanager
def opened(data: Dataset | Prepared, on: Any = None) -> Iterator[Crowd]:
    """Bring the partitions of a data set to where the fit is to run."""
    if on is None:
        on = Disk(data.folder / "work") if isinstance(data, Prepared) else Memory()
    if isinstance(on, Memory):
        users: Partitions = on.partitions(data)
    elif isinstance(on, Disk):
        users = on.partitions(data)
    else:
        users = _on_cluster(data, on)
    checkpoint = on.checkpoint if isinstance(on, Disk) else None
    try:
        if isinstance(data, Prepared):
            yield _prepared_crowd(data, users, checkpoint)
        else:
            yield _crowd(data, users, checkpoint)
        if checkpoint is not None:
            checkpoint.clear()
    finally:
        users.close()


def gathered(parts: Iterator[np.ndarray], users: Partitions, shape: tuple[int, int]) -> np.ndarray:
    """Put rows of all partitions below each other."""
    rows = users.room("gathered", shape, np.float32)
    end = 0
    for part in parts:
        begin, end = end, end + len(part)
        rows[begin:end] = part
    return rows


def _on_cluster(data: Dataset | Prepared, client: Any) -> Partitions:
    if not hasattr(client, "submit") or not hasattr(client, "scheduler_info"):
        raise SettingError(
            f"on={client!r} is no place for a fit",
            hint="None, Memory(), Disk(folder), or a dask.distributed.Client",
        )
    from coldhash.scale.dask import OnDask  # needs the extra `dask`

    parts = data.raw_parts() if isinstance(data, Prepared) else raw_parts(data)
    return OnDask(client, parts)


def _crowd(data: Dataset, users: Partitions, checkpoint: Checkpoint | None) -> Crowd:
    ratings = data.ratings
    return Crowd(
        users=users,
        n_users=len(ratings.users),
        n_ratings=len(ratings),
        plan=data.plan,
        items=data.items,
        item_ids=ratings.items,
        scale=ratings.scale,
        last_facts=lambda _: {"user_ids": ratings.users, "seen": ratings.matrix},
        checkpoint=checkpoint,
    )


def _prepared_crowd(data: Prepared, users: Partitions, checkpoint: Checkpoint | None) -> Crowd:
    return Crowd(
        users=users,
        n_users=data.n_users,
        n_ratings=data.n_ratings,
        plan=data.plan,
        items=data.items,
        item_ids=data.item_ids,
        scale=data.scale,
        last_facts=lambda users: {"user_ids": data.user_ids(), "seen": data.seen(users.room)},
        checkpoint=checkpoint,
    )
