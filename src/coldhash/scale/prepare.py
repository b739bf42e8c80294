"""Ratings larger than memory -> a folder of partitions with rows for ids.

DuckDB reads the file, numbers the ids and sorts, all of it with bounded memory and spilling to the
folder. Every partition is then small enough to be checked and sorted here, by the same rules as
ratings that fit into memory. What was done stays done: killed and started again, it goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from coldhash.arrays.memory import n_bytes_of
from coldhash.data.dataset import PART_USERS, pad_table, partition_ends, read_side_table
from coldhash.data.ids import Ids
from coldhash.data.plan import FeaturePlan, guess_plan
from coldhash.data.ratings import Duplicates, duplicate_error, merge_duplicates
from coldhash.errors import DataError, SettingError
from coldhash.files import replace_file, replace_text, writing
from coldhash.scale.prepared import FORMAT, ITEM_ID, MANIFEST, USER_ID, Prepared
from coldhash.scale.sorting import Sorting, forget_sorting

Progress = Callable[[str, int, int], None]  # what is done, how much of it, of how much


def prepare(
    ratings: str | Path,
    out: str | Path,
    users: Any = None,
    items: Any = None,
    *,
    columns: Mapping[str, str | None] | None = None,
    plan: FeaturePlan | None = None,
    scale: tuple[float, float] | None = None,
    duplicates: Duplicates = "error",
    part_users: int = PART_USERS,
    memory: int | str = "2GB",
    progress: Progress | None = None,
) -> Prepared:
    """Turn a CSV, TSV or Parquet file of ratings of any size into a folder of partitions.

    Arguments as those of `Dataset.from_tables`; the tables of users and items are read into memory.
    Users are numbered as there: those of the table first, others in order of appearance.

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
    if duplicates not in get_args(Duplicates):
        raise SettingError(
            f"duplicates={duplicates!r} is not a rule",
            hint=f"one of {', '.join(get_args(Duplicates))}",
        )
    if part_users < 1:
        raise SettingError(f"part_users={part_users}", hint="at least 1")
    folder, path, mapping = Path(out), Path(ratings), dict(columns or {})
    rules = {"columns": mapping, "scale": scale, "duplicates": duplicates, "part_users": part_users}
    rules["plan"] = None if plan is None else plan.model_dump()
    job = _job(path, users, items, rules)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if _begun(folder) == job and (folder / MANIFEST).exists():
        forget_sorting(folder)  # a preparation that was killed at its very end had no time for it
        return Prepared.open(folder)
    if _begun(folder) != job:
        _clear(folder)
        replace_text(folder / "job.json", json.dumps(job))
    user_ids, user_table = read_side_table(users, "user", mapping)
    item_ids, item_table = read_side_table(items, "item", mapping)
    tell = progress or (lambda *_: None)
    with Sorting.open(folder, path, n_bytes_of(memory)) as sorting:
        tell("sorting", 0, 1)
        sizes = sorting.sort(mapping, user_ids, item_ids, scale)
        tell("sorting", 1, 1)
        user_table = pad_table(user_table, sizes.n_users)
        item_table = pad_table(item_table, sizes.n_items)
        chosen = guess_plan(user_table, item_table) if plan is None else plan
        all_items = sorting.ids("item", 0, sizes.n_items)
        _write_table(folder / "items.parquet", _with_ids(item_table, all_items, ITEM_ID))
        ends = partition_ends(sizes.n_users, part_users)
        maker = _Maker(folder, sorting, user_table, Ids(all_items, "item"), duplicates, path)
        counts = []
        for at, (first, last) in enumerate(pairwise(ends)):
            counts.append(maker.make(at, first, last))
            tell("writing partitions", at + 1, len(ends) - 1)
    facts = {
        "format": FORMAT,
        "n_users": sizes.n_users,
        "n_ratings": sum(counts),
        "scale": list(scale or sizes.scale),
        "ends": ends,
        "largest_part": max(counts),
        "plan": chosen.model_dump(exclude_none=True),
    }
    replace_text(folder / MANIFEST, json.dumps(facts))
    forget_sorting(folder)
    return Prepared.open(folder)


@dataclass(frozen=True, eq=False)
class _Maker:
    """Writes partitions, each in one step."""

    folder: Path
    sorting: Sorting
    users: pa.Table
    items: Ids
    duplicates: Duplicates
    source: Path

    def make(self, at: int, first: int, last: int) -> int:
        """Write one partition, unless it is there; gives the number of its ratings."""
        ratings = self.folder / f"ratings-{at:05}.parquet"
        people = self.folder / f"users-{at:05}.parquet"
        if ratings.exists() and people.exists():
            return pq.read_metadata(ratings).num_rows  # type: ignore[no-any-return]
        ids = self.sorting.ids("user", first, last)
        rows = self.users.slice(first, last - first) if self.users.num_columns else pa.table({})
        user_rows, item_rows, values, lines = self.sorting.ratings(first, last)
        keep, values = self._unique(user_rows, item_rows, values, lines, ids)
        columns = {"user": user_rows[keep], "item": item_rows[keep], "rating": values}
        _write_table(people, _with_ids(rows, ids, USER_ID))
        _write_table(ratings, pa.table(columns))
        return len(keep)

    def _unique(
        self,
        user_rows: np.ndarray,
        item_rows: np.ndarray,
        values: np.ndarray,
        lines: np.ndarray,
        ids: pa.Array,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sort by user and item, and apply the rule to repeated pairs."""
        in_order = np.argsort(lines)  # the order of the file decides which one is last
        rule = "last" if self.duplicates == "error" else self.duplicates
        users, items = user_rows[in_order], item_rows[in_order]
        keep, kept = merge_duplicates(users, items, values[in_order], rule)
        if self.duplicates == "error" and len(keep) < len(values):
            numbers = lines[in_order]
            raise duplicate_error(
                users, items, Ids(ids, "user"), self.items, lambda at: self._where(numbers[at])
            )
        return in_order[keep], kept

    def _where(self, line: int) -> str:
        return f"{self.source}, row {line}"


def _with_ids(table: pa.Table, ids: pa.Array, name: str) -> pa.Table:
    if name in table.column_names:
        raise DataError(f"a second column {name!r} beside the ids", hint="rename it")
    if not table.num_columns:
        return pa.table({name: ids})
    return table.add_column(0, name, ids)


def _job(path: Path, users: Any, items: Any, rules: dict[str, Any]) -> dict[str, Any]:
    """Say what is prepared, so that another job in the same folder is not taken for it."""
    files: dict[str, list[Any] | None] = {}
    for title, source in (("ratings", path), ("users", users), ("items", items)):
        if isinstance(source, str | Path) and Path(source).exists():
            facts = Path(source).stat()
            files[title] = [str(Path(source).resolve()), facts.st_size, facts.st_mtime_ns]
        else:
            files[title] = None if source is None else [repr(type(source))]
    return json.loads(json.dumps({"files": files, "rules": rules}))  # type: ignore[no-any-return]


def _begun(folder: Path) -> Any:
    try:
        return json.loads((folder / "job.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _clear(folder: Path) -> None:
    """Remove what another job made; anything that is not ours stays."""
    for pattern in (MANIFEST, "items.parquet", "ratings-*.parquet", "users-*.parquet", "sort*"):
        for file in folder.glob(pattern):
            if file.is_file():
                file.unlink()


def _write_table(path: Path, table: pa.Table) -> None:
    with replace_file(path) as file:
        pq.write_table(table, file)
