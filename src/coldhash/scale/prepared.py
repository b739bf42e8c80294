"""Data larger than memory: a folder of partitions, ratings and users in Parquet, ids as rows.

manifest.json          written last: sizes, scale, feedback, where partitions begin, the plan
items.parquet          item_id and the columns of the item table, in row order
ratings-00000.parquet  user (row within the partition), item (row), rating, time if known; sorted
users-00000.parquet    user_id and the columns of the user table, in row order

DuckDB reads the file of ratings, numbers the ids and sorts, with bounded memory and spilling to
the folder. Every partition is then checked in memory, by the same rules as ratings that fit into
memory. A preparation that was killed continues when it is started again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ByteSize, Field, TypeAdapter, ValidationError
from scipy.sparse import csr_array

from coldhash.data import reading
from coldhash.data.dataset import UserRecords, partition_ends
from coldhash.data.feedback import Feedback, FeedbackKind
from coldhash.data.ids import Ids
from coldhash.data.plan import FeaturePlan, PlanLike, as_plan, guess_plan
from coldhash.data.ratings import Duplicates
from coldhash.data.tables import TableFile, TableLike
from coldhash.errors import DataError, SettingError, SourceError, check_positive
from coldhash.files import replace_file, replace_text, writing
from coldhash.partitions import Allocate
from coldhash.scale.sorting import RatingSorter

MANIFEST_FORMAT = 2
MANIFEST = "manifest.json"
_SIZE: TypeAdapter[ByteSize] = TypeAdapter(Annotated[ByteSize, Field(gt=0)])
USER_ID, ITEM_ID, TIME = "user_id", "item_id", "time"


def partition_file(folder: Path, kind: str, at: int) -> Path:
    """Return the path of the ratings or the users of a partition."""
    return folder / f"{kind}-{at:05}.parquet"


@dataclass(frozen=True)
class StoredRecords:
    """One partition in the files of a folder."""

    folder: Path
    at: int
    first: int
    shape: tuple[int, int]

    def load(self) -> UserRecords:
        """Read the partition."""
        table = pq.read_table(partition_file(self.folder, "users", self.at))
        rated = pq.read_table(partition_file(self.folder, "ratings", self.at))
        times = rated.column(TIME).to_numpy() if TIME in rated.column_names else None
        users, items, values = (rated.column(at).to_numpy() for at in range(3))
        indptr = np.zeros(self.shape[0] + 1, dtype=np.int32)
        np.cumsum(np.bincount(users, minlength=self.shape[0]), out=indptr[1:])
        ratings = csr_array((values, items, indptr), shape=self.shape)
        return UserRecords(self.first, ratings, _without(table, USER_ID), times)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A data set in partitions on disk, made by `prepare` and found by `Prepared.open`.

    Parameters
    ----------
    folder
        The folder of the partitions.
    n_users, n_ratings
        The numbers of users and ratings.
    scale
        The lowest and the highest possible rating.
    ends
        The row where each partition begins, and the one where the last ends.
    largest_part
        The number of ratings of the largest partition.
    plan
        Which columns become which features.
    feedback
        What the ratings are, and which of them make an item a favourite.
    columns
        Which columns held the ids and titles, as in `Dataset`.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from coldhash.scale import prepare
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
    ends: tuple[int, ...]
    largest_part: int
    plan: FeaturePlan
    feedback: Feedback
    columns: dict[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: str | Path) -> Prepared:
        """Open a folder that `prepare` made.

        Parameters
        ----------
        folder
            The folder.

        Returns
        -------
        Prepared
            The data set; its partitions are read when they are needed.

        Raises
        ------
        SourceError
            The folder holds no prepared data or only a part of it, or a newer version made it.
        """
        try:
            facts = json.loads((Path(folder) / MANIFEST).read_text(encoding="utf-8"))
            if facts["format"] <= MANIFEST_FORMAT:
                return TypeAdapter(cls).validate_python({**facts, "folder": folder})
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            message = f"{folder} holds no prepared data, or only a part of it: {error!r}"
            hint = "coldhash prepare --ratings FILE --out DIR starts it, or continues it"
            raise SourceError(message, hint=hint) from None
        raise SourceError(f"{folder} was prepared by a newer version", hint="upgrade")

    @cached_property
    def _items(self) -> pa.Table:
        return pq.read_table(self.folder / "items.parquet")

    @property
    def items(self) -> pa.Table:
        """The item table without ids, in row order."""
        return _without(self._items, ITEM_ID)

    @property
    def item_ids(self) -> Ids:
        """The ids of items, in row order."""
        return Ids.of(self._items.column(ITEM_ID), "item")

    @property
    def user_ids(self) -> Ids:
        """The ids of all users, in row order."""
        files = [partition_file(self.folder, "users", at) for at in range(len(self.ends) - 1)]
        # names of folders are no values of columns here
        table = pq.read_table(files, columns=[USER_ID], partitioning=None)
        return Ids.of(table.column(USER_ID), "user")

    def records(self) -> list[StoredRecords]:
        """Return the files of every partition; a fit reads them one by one.

        Returns
        -------
        list of StoredRecords
            One for each partition, in row order.
        """
        n_items = self._items.num_rows
        return [
            StoredRecords(self.folder, at, first, (last - first, n_items))
            for at, (first, last) in enumerate(pairwise(self.ends))
        ]

    def seen(self, allocate: Allocate) -> csr_array:
        """Return what users rated, without the values of the ratings.

        Parameters
        ----------
        allocate
            Takes a name, a shape and a dtype, and returns the array for the column indices.

        Returns
        -------
        csr_array
            Users x items, 1 for each rating.

        Raises
        ------
        DataError
            The partitions do not hold as many ratings as the manifest says.
        """
        kind = np.int32 if self.n_ratings < 2**31 else np.int64
        indptr = np.zeros(self.n_users + 1, dtype=kind)
        indices = allocate("seen", (self.n_ratings,), kind)
        end = 0
        for part in self.records():
            ratings = part.load().ratings
            begin, end = end, end + ratings.nnz
            indices[begin:end] = ratings.indices
            indptr[part.first + 1 : part.first + part.shape[0] + 1] = ratings.indptr[1:] + begin
        if end != self.n_ratings:
            message = f"{self.folder} holds {end:,} ratings, not {self.n_ratings:,}"
            raise DataError(message, hint="prepare again")
        ones = np.broadcast_to(np.float32(1), indices.shape)
        shape = (self.n_users, self._items.num_rows)
        return csr_array((ones, indices, indptr), shape=shape, copy=False)


def _without(table: pa.Table, name: str) -> pa.Table:
    """Remove a column; a table without columns has no rows either."""
    table = table.drop_columns([name])
    return table if table.num_columns else pa.table({})


def prepare(
    ratings: str | Path,
    out: str | Path,
    users: TableLike | None = None,
    items: TableLike | None = None,
    *,
    columns: Mapping[str, str | None] | None = None,
    plan: PlanLike | None = None,
    scale: tuple[float, float] | None = None,
    duplicates: Duplicates | None = None,
    feedback: FeedbackKind | None = None,
    favourite: float | None = None,
    event_weights: Mapping[str, float] | None = None,
    part_users: int | None = None,
    memory: int | str = "2GB",
    progress: Callable[[str, int, int], None] | None = None,
) -> Prepared:
    """Turn a file of ratings of any size into a folder of partitions.

    Users and items get rows as in `Dataset.from_tables`: those of the tables first, others in
    order of appearance. Started again with the same arguments, it continues where it stopped.

    Parameters
    ----------
    ratings
        A CSV, TSV or Parquet file, or a folder or wildcards of such files.
    out
        The folder to make.
    users, items, columns, plan, scale, duplicates, feedback, favourite, event_weights
        As for `Dataset.from_tables`; the tables of users and items are read into memory.
    part_users
        Users of one partition; None: as many as `Dataset.records` has. It changes how sums over
        users are rounded.
    memory
        How much memory may be used, such as "2GB".
    progress
        Called with what is done, how much of it is done, and of how much.

    Returns
    -------
    Prepared
        The data set, which `MFDCF.fit` takes in place of a `Dataset`.

    Raises
    ------
    SettingError
        An argument is wrong, DuckDB is not installed, or the memory is too little to sort.
    SourceError
        The file does not exist, or the folder cannot be written.
    DataError
        The file holds no ratings, or something that cannot be a rating.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     table = pa.table({"user_id": [1, 1, 2], "item_id": [7, 8, 7], "rating": [5, 1, 4]})
    ...     pq.write_table(table, f"{folder}/r.parquet")
    ...     parts = prepare(f"{folder}/r.parquet", f"{folder}/parts", part_users=1)
    ...     parts.n_users, parts.n_ratings, parts.ends
    (2, 3, (0, 1, 2))
    """
    plan = None if plan is None else as_plan(plan)
    if part_users is not None:
        check_positive("part_users", part_users)
    folder, source = Path(out), Path(ratings)
    rules = (feedback, favourite, event_weights, scale, duplicates)
    options = reading.RatingOptions(columns or {}, *rules)
    files = [_identify(file) for file in (source, users, items)]
    _begin(folder, repr((files, options, part_users, plan)))
    if not (folder / MANIFEST).exists():
        tables = reading.read_sides(users, items, options.columns)
        user_ids, user_table, item_ids, item_table, used = tables
        (plan or FeaturePlan()).check_tables(user_table, item_table)
        report = progress or (lambda *_: None)
        with RatingSorter.open(folder, source, n_bytes_of(memory)) as sorter:
            report("sorting", 0, 1)
            n_users, n_items, made = sorter.sort(user_ids, item_ids, options)
            report("sorting", 1, 1)
            user_table = reading.pad_table(user_table, n_users)
            item_table = reading.pad_table(item_table, n_items)
            _write_table(folder / "items.parquet", ITEM_ID, sorter.ids("item"), item_table)
            ends, counts = partition_ends(n_users, part_users), []
            for at, (first, last) in enumerate(pairwise(ends)):
                path = partition_file(folder, "ratings", at)
                if not path.exists():  # then the users may not be written either
                    ids, some = sorter.ids("user", first, last), user_table[first:last]
                    _write_table(partition_file(folder, "users", at), USER_ID, ids, some)
                    rated = sorter.ratings(first, last, options.duplicates_of(made))
                    with replace_file(path) as file:
                        pq.write_table(rated, file)
                counts.append(pq.read_metadata(path).num_rows)
                report("writing partitions", at + 1, len(ends) - 1)
        plan = plan or guess_plan(user_table, item_table)
        totals = (n_users, sum(counts), scale or (0.0, 1.0), tuple(ends), max(counts))
        done = Prepared(folder, *totals, plan, made, used)
        if scale is None:
            values = (part.load().ratings.data for part in done.records())
            extremes = [(each.min(), each.max()) for each in values if len(each)]
            scale = float(np.min(extremes)), float(np.max(extremes))
        done = replace(done, scale=scale, feedback=replace(made, scale=scale))
        liked = (done.feedback.is_favourite(part.load().ratings).sum() for part in done.records())
        done.feedback.warn_if_unlikely(int(sum(liked)), done.n_ratings)
        facts = TypeAdapter(Prepared).dump_python(
            done, mode="json", exclude={"folder"}, exclude_none=True
        )
        replace_text(folder / MANIFEST, json.dumps({"format": MANIFEST_FORMAT, **facts}))
    RatingSorter.remove(folder)  # the partitions hold the ratings
    return Prepared.open(folder)


def n_bytes_of(size: int | str) -> int:
    """Return the bytes of 2_000_000_000, "2GB" or "1.5 GiB"."""
    try:
        return int(_SIZE.validate_python(size))
    except ValidationError:
        raise SettingError(f"{size!r} is not a size", hint="such as 2GB or 512MB") from None


def _identify(source: object) -> list[str] | None:
    """Describe a table, so that another job in the same folder is not taken for this one."""
    if not isinstance(source, str | Path):
        return None if source is None else [repr(type(source))]
    paths = [file.path for file in TableFile(path=Path(source)).files()]
    places = [(path.resolve(), path.stat()) for path in paths]
    return [f"{path} {found.st_size} {found.st_mtime_ns}" for path, found in places]


def _begin(folder: Path, job: str) -> None:
    """Make the folder; remove what another job made in it, but nothing else."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job"
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == job:
        return
    RatingSorter.remove(folder)
    for pattern in (MANIFEST, "items.parquet", "ratings-*.parquet", "users-*.parquet"):
        for file in folder.glob(pattern):
            file.unlink()
    replace_text(path, job)


def _write_table(path: Path, name: str, ids: Ids, table: pa.Table) -> None:
    """Write ids and the columns of a table; one without columns has no rows either."""
    if name in table.column_names:
        raise DataError(f"a second column {name!r} beside the ids", hint="rename it")
    columns = dict(zip(table.column_names, table.columns, strict=True))
    with replace_file(path) as file:
        pq.write_table(pa.table({name: ids.values, **columns}), file)
