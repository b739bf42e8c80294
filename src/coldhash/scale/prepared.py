"""A folder of partitions that `prepare` made: ratings and users in Parquet, ids as rows.

manifest.json          written last: sizes, the scale, where partitions begin, the plan
items.parquet          item_id and the columns of the item table, in row order
ratings-00000.parquet  user (row within the partition), item (row), rating; sorted
users-00000.parquet    user_id and the columns of the user table, in row order
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import csr_array

from coldhash.data.dataset import UserRecords
from coldhash.data.ids import Ids
from coldhash.data.plan import FeaturePlan
from coldhash.errors import ColdhashError, DataError, SourceError
from coldhash.partitions import Allocate

FORMAT = 1
MANIFEST = "manifest.json"
USER_ID, ITEM_ID = "user_id", "item_id"


@dataclass(frozen=True)
class StoredRecords:
    """The files of one partition."""

    first: int
    shape: tuple[int, int]
    ratings: Path
    users: Path

    def load(self) -> UserRecords:
        """Read the partition."""
        table = pq.read_table(self.users).drop_columns([USER_ID])
        return UserRecords(
            self.first, self.load_ratings(), table if table.num_columns else pa.table({})
        )

    def load_ratings(self) -> csr_array:
        """Read the ratings as users x items."""
        table = pq.read_table(self.ratings)
        users, items, values = (table.column(at).to_numpy() for at in range(3))
        indptr = np.zeros(self.shape[0] + 1, dtype=np.int32)
        np.cumsum(np.bincount(users, minlength=self.shape[0]), out=indptr[1:])
        return csr_array((values, items, indptr), shape=self.shape)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A data set in partitions on disk; `Prepared.open` finds it.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from coldhash.scale.prepare import prepare
    >>> with TemporaryDirectory() as folder:
    ...     table = pa.table({"user_id": [1, 1, 2], "item_id": [7, 8, 7], "rating": [5, 1, 4]})
    ...     pq.write_table(table, f"{folder}/r.parquet")
    ...     _ = prepare(f"{folder}/r.parquet", f"{folder}/parts")
    ...     Prepared.open(f"{folder}/parts").n_ratings
    3
    """

    folder: Path
    n_users: int
    n_ratings: int
    scale: tuple[float, float]
    ends: tuple[int, ...]  # where partitions begin, and where the last one ends
    largest_part: int  # ratings
    plan: FeaturePlan

    @classmethod
    def open(cls, folder: str | Path) -> Prepared:
        """Open what `prepare` made."""
        path = Path(folder) / MANIFEST
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            if facts["format"] > FORMAT:
                raise SourceError(f"{folder} was prepared by a newer version", hint="upgrade")
            return cls(
                folder=Path(folder),
                n_users=facts["n_users"],
                n_ratings=facts["n_ratings"],
                scale=(facts["scale"][0], facts["scale"][1]),
                ends=tuple(facts["ends"]),
                largest_part=facts["largest_part"],
                plan=FeaturePlan(**facts["plan"]),
            )
        except ColdhashError:
            raise
        except OSError:
            raise SourceError(
                f"{folder} holds no prepared data, or only a part of it",
                hint="coldhash prepare --ratings FILE --out DIR (again: it goes on)",
            ) from None
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise SourceError(f"{path} cannot be read: {error!r}", hint="prepare again") from None

    @cached_property
    def _items(self) -> pa.Table:
        return pq.read_table(self.folder / "items.parquet")

    @property
    def items(self) -> pa.Table:
        """What is known of items, in row order."""
        table = self._items.drop_columns([ITEM_ID])
        return table if table.num_columns else pa.table({})

    @property
    def item_ids(self) -> Ids:
        """The ids of items, in row order."""
        return Ids(_texts(self._items.column(ITEM_ID)), "item")

    @property
    def user_ids(self) -> Ids:
        """The ids of all users, in row order."""
        columns = [
            pq.read_table(self._file("users", at), columns=[USER_ID]).column(0)
            for at in range(len(self.ends) - 1)
        ]
        chunks = [chunk for column in columns for chunk in column.chunks]
        return Ids(_texts(pa.chunked_array(chunks, pa.string())), "user")

    def seen(self, allocate: Allocate) -> csr_array:
        """Return what users rated as users x items, without the ratings."""
        kind = np.int32 if self.n_ratings < 2**31 else np.int64
        indptr = np.zeros(self.n_users + 1, dtype=kind)
        indices = allocate("seen", (self.n_ratings,), kind)
        end = 0
        for at, part in enumerate(self.records()):
            ratings = part.load_ratings()
            begin, end = end, end + ratings.nnz
            indices[begin:end] = ratings.indices
            indptr[self.ends[at] + 1 : self.ends[at + 1] + 1] = ratings.indptr[1:] + begin
        if end != self.n_ratings:
            raise DataError(f"{self.folder} holds {end:,} ratings, not {self.n_ratings:,}")
        ones = np.broadcast_to(np.float32(1), indices.shape)
        shape = (self.n_users, len(self.item_ids))
        return csr_array((ones, indices, indptr), shape=shape, copy=False)

    def records(self) -> list[StoredRecords]:
        """Return the records of every partition, not yet read."""
        n_items = self._items.num_rows
        return [
            StoredRecords(
                first,
                (last - first, n_items),
                self._file("ratings", at),
                self._file("users", at),
            )
            for at, (first, last) in enumerate(pairwise(self.ends))
        ]

    def _file(self, name: str, at: int) -> Path:
        return self.folder / f"{name}-{at:05}.parquet"


def _texts(column: pa.ChunkedArray) -> pa.Array:
    return column.cast(pa.string()).combine_chunks()
