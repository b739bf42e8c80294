"""Data larger than memory: a folder of partitions, ratings and users in Parquet, ids as rows.

manifest.json          written last: sizes, scale, feedback, where partitions begin, the plan
items.parquet          item_id and the columns of the item table, in row order
ratings-00000.parquet  user (row within the partition), item (row), rating, time if known; sorted
users-00000.parquet    user_id and the columns of the user table, in row order

Ratings are read in blocks, by the rules for ratings that fit into memory, and every block is
written as a run, sorted by user. A partition is then a slice of each run: no merge is needed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import feather
from pydantic import ByteSize, Field, TypeAdapter, ValidationError
from scipy.sparse import csr_array

from coldhash.data import ratings as rating_rules
from coldhash.data import reading
from coldhash.data.dataset import UserRecords, partition_ends
from coldhash.data.feedback import Favourite, Feedback, FeedbackKind
from coldhash.data.ids import Ids, NameRow, assign_rows
from coldhash.data.plan import FeaturePlan, PlanLike, as_plan, guess_plan
from coldhash.data.tables import TableFile, TableLike
from coldhash.errors import ColumnError, DataError, SettingError, SourceError, check_positive
from coldhash.files import draft_folder, lock_file, replace_file, replace_text
from coldhash.partitions import Allocate

MOST_GUESSED = 10_000_000  # ratings by which feedback is guessed
RUNS = "runs"
MOST_BYTES = 1 << 28
BLOCK_SHARE = 24  # of the memory, which a block takes while it is read and sorted
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
            hint = "coldhash prepare --ratings FILE --out DIR makes it"
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
    duplicates: rating_rules.Duplicates | None = None,
    feedback: FeedbackKind | None = None,
    favourite: Favourite | None = None,
    event_weights: Mapping[str, float] | None = None,
    part_users: int | None = None,
    memory: int | str = "2GB",
    progress: Callable[[str, int, int], None] | None = None,
) -> Prepared:
    """Turn a file of ratings of any size into a folder of partitions.

    Users and items get rows as in `Dataset.from_tables`: those of the tables first, others in
    order of appearance. What an earlier preparation left in the folder is replaced.

    Parameters
    ----------
    ratings
        A CSV, TSV, JSON lines or Parquet file, or a folder or wildcards of such files.
    out
        The folder to make.
    users, items, columns, plan, scale, duplicates, feedback, favourite, event_weights
        As for `Dataset.from_tables`; the tables of users and items are read into memory.
    part_users
        Users of one partition; None: as many as `Dataset.records` has. It changes how sums over
        users are rounded.
    memory
        How much memory may be used, such as "2GB", beside the ids and tables of users and items.
    progress
        Called with what is done, how much of it is done, and of how much.

    Returns
    -------
    Prepared
        The data set, which `MFDCF.fit` takes in place of a `Dataset`.

    Raises
    ------
    SettingError
        An argument is wrong, or another preparation works in the folder.
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
    TableFile(path=source).files()  # raises an error before anything is removed
    with lock_file(folder / "lock", f"another preparation works in {folder}"):
        tables = reading.read_sides(users, items, options.columns)
        user_ids, user_table, item_ids, item_table, used = tables
        (plan or FeaturePlan()).check_tables(user_table, item_table)
        report = progress or (lambda *_: None)
        for draft in folder.glob(f".{RUNS}.*.part"):  # of a preparation that was killed
            shutil.rmtree(draft)
        with draft_folder(folder / RUNS) as draft:
            report("sorting", 0, 1)
            ids = {"user": user_ids, "item": item_ids}
            runs = Runs.sort(draft, source, ids, options, n_bytes_of(memory))
            report("sorting", 1, 1)
            for pattern in (MANIFEST, "items.parquet", "ratings-*.parquet", "users-*.parquet"):
                for old in folder.glob(pattern):
                    old.unlink()
            n_users, n_items = len(runs.ids["user"]), len(runs.ids["item"])
            user_table = reading.pad_table(user_table, n_users)
            item_table = reading.pad_table(item_table, n_items)
            _write_table(folder / "items.parquet", ITEM_ID, runs.ids["item"], item_table)
            ends, counts, extremes = partition_ends(n_users, part_users), [], []
            for at, (first, last) in enumerate(pairwise(ends)):
                own_ids = Ids(runs.ids["user"].values[first:last], "user")
                users_file = partition_file(folder, "users", at)
                _write_table(users_file, USER_ID, own_ids, user_table[first:last])
                rated = runs.ratings(first, last, options.duplicates_of(runs.feedback))
                with replace_file(partition_file(folder, "ratings", at)) as file:
                    pq.write_table(rated, file)
                counts.append(len(rated))
                extremes += pc.min_max(rated.column("rating")).as_py().values()
                report("writing partitions", at + 1, len(ends) - 1)
        plan = plan or guess_plan(user_table, item_table)
        if scale is None:
            found = pc.min_max(pa.array(extremes)).as_py()
            scale = found["min"], found["max"]
        totals = (n_users, sum(counts), scale, tuple(ends), max(counts))
        done = Prepared(folder, *totals, plan, replace(runs.feedback, scale=scale), used)
        liked = (done.feedback.is_favourite(part.load().ratings).sum() for part in done.records())
        done.feedback.warn_if_unlikely(int(sum(liked)), done.n_ratings)
        facts = TypeAdapter(Prepared).dump_python(
            done, mode="json", exclude={"folder"}, exclude_none=True
        )
        replace_text(folder / MANIFEST, json.dumps({"format": MANIFEST_FORMAT, **facts}))
    return done


def n_bytes_of(size: int | str) -> int:
    """Return the bytes of 2_000_000_000, "2GB" or "1.5 GiB"."""
    try:
        return int(_SIZE.validate_python(size))
    except ValidationError:
        raise SettingError(f"{size!r} is not a size", hint="such as 2GB or 512MB") from None


def _write_table(path: Path, name: str, ids: Ids, table: pa.Table) -> None:
    """Write ids and the columns of a table; one without columns has no rows either."""
    if name in table.column_names:
        raise DataError(f"a second column {name!r} beside the ids", hint="rename it")
    columns = dict(zip(table.column_names, table.columns, strict=True))
    with replace_file(path) as file:
        pq.write_table(pa.table({name: ids.values, **columns}), file)


@dataclass(frozen=True, eq=False)
class Runs:
    """Ratings in files of as many as fit into memory, each sorted by user, with rows for ids."""

    paths: list[Path]
    source: Path
    ids: dict[str, Ids]  # of "user" and "item"
    feedback: Feedback
    form: pa.DataType | None  # of times; None: unknown

    @classmethod
    def sort(
        cls,
        folder: Path,
        source: Path,
        ids: dict[str, Any],
        options: reading.RatingOptions,
        memory: int,
    ) -> Runs:
        """Write a run for each block of a file of ratings; `ids` are those known, or None."""
        n_rows, kinds = 0, None
        paths: list[Path] = []
        blocks = TableFile(path=source).read_blocks(
            max(1, min(memory // BLOCK_SHARE, MOST_BYTES)), options.types, options.find_columns
        )
        for block in blocks:
            found = options.find_columns(block.table.column_names, block.title)
            rows, values, column = reading.read_values(block, found, options)
            times = column.get("timestamp", pa.nulls(len(rows)))
            if kinds not in (None, (found, _kind_of_times(times.type))):
                message = f"{block.title} has other columns than the files before, or other times"
                raise ColumnError(message, hint="files of one kind")
            kinds = found, _kind_of_times(times.type)
            where, run = partial(_name_row, block.where, rows), {}
            for kind in ids:
                ids[kind], row_of = assign_rows(column[f"{kind}_id"], ids[kind], kind, where)
                run[kind] = row_of.astype(np.int32)
            values = rating_rules.as_ratings(values, options.scale, where)
            if len(rows):
                order = pa.array(np.argsort(run["user"], kind="stable"))
                table = pa.table(run | {"rating": values, "time": times, "line": n_rows + rows})
                paths.append(folder / f"run-{len(paths):06}")
                _write_run(paths[-1], table.take(order))
            n_rows += block.table.num_rows
        if kinds is None or not paths:
            raise DataError("the ratings have columns, but no rows", hint="is it the right file?")
        every = slice(None, None, 1 + n_rows // MOST_GUESSED)
        some = [_read_run(path).column("rating").to_numpy()[every].copy() for path in paths]
        feedback = options.feedback(lambda: np.concatenate(some), kinds[0].get("rating"))
        return cls(paths, source, ids, feedback, _form_of_times(paths))

    def ratings(self, first: int, last: int, rule: rating_rules.Duplicates) -> pa.Table:
        """Return the ratings of some users, sorted by row of the user, from 0, and of the item."""
        slices = []
        for path in self.paths:
            run = _read_run(path)
            begin, end = np.searchsorted(run.column("user").to_numpy(), (first, last))
            slices.append(run.slice(begin, end - begin))
        table = pa.concat_tables([each.drop_columns("time") for each in slices])
        users, items, values, lines = (column.to_numpy() for column in table.columns)
        users, known = users - first, None
        if self.form is not None:
            times = [reading.number_times(each.column("time"), self.form) for each in slices]
            known = pa.concat_arrays(times).to_numpy()
        shape = (last - first, int(items.max(initial=0)) + 1)
        found, known = rating_rules.sort_ratings(users, items, values, known, shape, rule)
        if rule == "error" and found.nnz < len(values):
            at = np.argsort(lines)
            ids = (Ids(self.ids["user"].values[first:last], "user"), self.ids["item"])
            where = partial(_name_row, f"{self.source}, row {{}}".format, lines[at])
            raise rating_rules.duplicate_error(users[at], items[at], *ids, where)
        user = rating_rules.row_of_entries(found).astype(np.int32)
        columns = {"user": user, "item": found.indices, "rating": found.data}
        return pa.table(columns if known is None else columns | {"time": known})


def _kind_of_times(form: pa.DataType) -> str:
    """Return what times of a type can be compared with."""
    if pa.types.is_date(form) or pa.types.is_timestamp(form):
        return "moments"
    return "whole numbers" if pa.types.is_integer(form) else str(form)


def _form_of_times(paths: list[Path]) -> pa.DataType | None:
    """Return the form that the times of all runs have; None if one is missing or all are equal."""
    for form in reading.TIME_FORMS:
        extremes = set()
        for path in paths:
            column = _read_run(path).column("time")
            numbers = reading.number_times(column, form)
            if numbers is None:
                break
            extremes |= {*pc.min_max(numbers, skip_nulls=False).as_py().values()}
        else:
            return form if None not in extremes and len(extremes) > 1 else None
    reading.warn_of_times(column)
    return None


def _name_row(where: NameRow, rows: np.ndarray, at: int) -> str:
    return where(int(rows[at]))


def _write_run(path: Path, table: pa.Table) -> None:
    """Write a table so that it can be mapped: one piece, and not compressed."""
    feather.write_feather(table, path, compression="uncompressed", chunksize=len(table))


def _read_run(path: Path) -> pa.Table:
    return feather.read_table(path, memory_map=True)
