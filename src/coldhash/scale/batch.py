"""Recommendations for all users of a model, on a Dask cluster, to a folder of Parquet files.

There is one file for each range of users, in the order of the model. Files appear complete, so a
batch that was killed continues where it stopped. `batch.json` in the folder says which model and
options the files are of; a batch with others in the same folder is an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from coldhash.errors import SettingError, SourceError, check_positive
from coldhash.files import open_regular, replace_file, replace_text, writing
from coldhash.recommender.model_file import load
from coldhash.recommender.recommender import Recommender

if TYPE_CHECKING:
    from distributed import Client

USERS_PER_FILE = 16_384


def recommend_all_on(
    client: Client,
    model_path: str | Path,
    out_folder: str | Path,
    k: int = 10,
    *,
    users_per_file: int = USERS_PER_FILE,
    progress: Callable[[int, int], None] | None = None,
    **options: object,
) -> list[Path]:
    """Write the k best items for every training user of a model file.

    Parameters
    ----------
    client
        A `dask.distributed.Client`.
    model_path, out_folder
        The model file and the folder to write to; all workers must reach both by these paths.
    k
        Items for each user.
    users_per_file
        Users of one file.
    progress
        Called with the number of files that are done, those of an earlier run included, and of all.
    **options
        Those of `Recommender.recommend`.

    Returns
    -------
    list of Path
        All files, in the order of users.

    Raises
    ------
    SettingError
        `users_per_file` is below 1, or the folder holds files of another model or other options.
    WorkerError
        A worker has other versions, or the cluster is lost.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from distributed import Client
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> with (
    ...     TemporaryDirectory() as folder,
    ...     Client(processes=False, n_workers=1, dashboard_address=":0") as client,
    ... ):
    ...     model.save(f"{folder}/m.coldhash")
    ...     files = recommend_all_on(client, f"{folder}/m.coldhash", f"{folder}/all", k=3)
    ...     [file.name for file in files]
    ['part-000000.parquet']
    """
    check_positive("users_per_file", users_per_file)
    from distributed import as_completed

    from coldhash.scale import dask  # needs the extra `dask`

    dask.check_workers(client)
    path, folder = Path(model_path).resolve(), Path(out_folder).resolve()
    checksum, n_users = _checksum(path), len(load(path).user_ids)
    options["k"] = k
    _check_folder(folder, {"model": checksum, "users_per_file": users_per_file} | options)
    starts = range(0, n_users, users_per_file)
    parts = {folder / f"part-{at:06d}.parquet": first for at, first in enumerate(starts)}
    missing = {file: first for file, first in parts.items() if not file.exists()}

    report = progress or (lambda *_: None)
    report(len(parts) - len(missing), len(parts))
    batch = (path, checksum, users_per_file, options)
    task = partial(dask.run_checked, dask.own_versions(), write_part, *batch)
    with dask.translate_dask_errors():
        futures = client.map(task, list(missing), list(missing.values()), pure=False)
        for n_done, future in enumerate(as_completed(futures), len(parts) - len(missing) + 1):
            future.result()
            report(n_done, len(parts))
    return list(parts)


def write_part(
    path: Path, checksum: str, n_users: int, options: dict[str, Any], file: Path, first: int
) -> None:
    """Write the file of some users, in a worker."""
    model = _load_model(path, checksum)
    user_ids = model.user_ids.values.slice(first, n_users).to_pylist()
    table = model.recommend(user_ids=user_ids, threads=1, **options).to_arrow()
    with replace_file(file) as draft:
        pq.write_table(table, draft)


@lru_cache(maxsize=2)
def _load_model(path: Path, checksum: str) -> Recommender:
    """Map a model once in each process."""
    if _checksum(path) != checksum:
        raise SourceError(f"{path} has changed, or is another on this worker", hint="start again")
    return load(path, verify=False)


def _checksum(path: Path) -> str:
    """Read the checksum that a model file ends with."""
    with open_regular(path) as file:
        file.seek(-32, os.SEEK_END)
        return file.read().hex()


def _check_folder(folder: Path, batch: dict[str, object]) -> None:
    """Create the folder, or raise an error if it holds files of another batch."""
    text, note = json.dumps(batch, sort_keys=True, default=repr, indent=1), folder / "batch.json"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        before = note.read_text(encoding="utf-8", errors="replace") if note.exists() else None
    if before is None and not any(folder.glob("part-*.parquet")):
        replace_text(note, text)
    elif before != text:
        message = f"{folder} holds recommendations of another model or with other options"
        raise SettingError(message, hint="name an empty folder")
