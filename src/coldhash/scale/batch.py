"""Recommendations for all users of a model, on a Dask cluster, to a folder of Parquet files.

There is one file for each range of users, in the order of the model. Files appear complete, so a
batch that was killed continues where it stopped. `batch.json` in the folder says which model and
options the files are of; a batch with others in the same folder is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from coldhash.errors import SettingError, SourceError
from coldhash.files import open_regular, replace_file, replace_text, writing
from coldhash.recommender.model_file import read_version
from coldhash.recommender.persistence import load
from coldhash.recommender.recommender import Recommender

if TYPE_CHECKING:
    from distributed import Client

USERS = 16_384  # of one file


def recommend_all_on(
    client: Client,
    model_path: str | Path,
    out_folder: str | Path,
    k: int = 10,
    *,
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
        The folder holds files of another model or other options.
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
    from distributed import as_completed

    from coldhash.scale import dask  # needs the extra `dask`

    dask.check_workers(client)
    path, folder = Path(model_path).resolve(), Path(out_folder).resolve()
    version, n_users = _version(path), len(load(path).user_ids)
    options["k"] = k
    _check_folder(folder, {"model": version, "users_per_file": USERS} | options)
    starts = range(0, n_users, USERS)
    parts = {folder / f"part-{at:06d}.parquet": first for at, first in enumerate(starts)}
    missing = {file: first for file, first in parts.items() if not file.exists()}

    report = progress or (lambda *_: None)
    report(len(parts) - len(missing), len(parts))
    batch = (path, version, USERS, options)
    task = partial(dask.run_checked, dask.own_versions(), write_part, *batch)
    with dask.translate_dask_errors():
        futures = client.map(task, list(missing), list(missing.values()), pure=False)
        for n_done, future in enumerate(as_completed(futures), len(parts) - len(missing) + 1):
            future.result()
            report(n_done, len(parts))
    return list(parts)


def write_part(
    path: Path, version: str, n_users: int, options: dict[str, Any], file: Path, first: int
) -> None:
    """Write the file of some users, in a worker."""
    model = _load_model(path, version)
    user_ids = model.user_ids.values.slice(first, n_users).to_pylist()
    table = model.recommend(user_ids=user_ids, threads=1, **options).to_arrow()
    with replace_file(file) as draft:
        pq.write_table(table, draft)


@lru_cache(maxsize=2)
def _load_model(path: Path, version: str) -> Recommender:
    """Map a model once in each process."""
    if _version(path) != version:
        raise SourceError(f"{path} has changed, or is another on this worker", hint="start again")
    return load(path, verify=False)


def _version(path: Path) -> str:
    with open_regular(path) as file:
        return read_version(file)


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
