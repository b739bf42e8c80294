"""Recommendations for all users of a model, on a Dask cluster, to a folder of Parquet files.

One file for each partition of users, in the order of the model. A file appears in one step, so that
what is there is whole: a batch that was killed goes on where it stopped. Beside the files stands
`batch.json`, what they answer: another question in the same folder is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldhash.errors import ColdhashError, SettingError, SourceError
from coldhash.files import open_regular, replace_file, replace_text
from coldhash.recommender.persistence import load
from coldhash.recommender.recommender import Recommender

if TYPE_CHECKING:
    from distributed import Client

PARTITION = 16_384  # users in a file
AHEAD = 4  # tasks a worker thread has waiting


@dataclass(frozen=True)
class Batch:
    """What was written: all files, and which of them were there before.

    Examples
    --------
    >>> Batch([Path("part-000000.parquet")], n_present=1).n_present  # nothing was left to do
    1
    """

    files: list[Path]
    n_present: int


def recommend_all_on(
    client: Client,
    model_path: str | Path,
    out_folder: str | Path,
    k: int = 10,
    *,
    users_per_file: int = PARTITION,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Batch:
    """Write the k best items for every user of a model file; the same as `recommend_all` gives.

    Workers read the model by its path and write to the folder, so both must be where all of them
    can reach them. `options` are those of `recommend`; `progress` is told files done and in all.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from distributed import Client
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> with (
    ...     TemporaryDirectory() as folder,
    ...     Client(processes=False, n_workers=1, dashboard_address=None) as client,
    ... ):
    ...     model.save(f"{folder}/m.coldhash")
    ...     written = recommend_all_on(client, f"{folder}/m.coldhash", f"{folder}/all", k=3)
    ...     [file.name for file in written.files]
    ['part-000000.parquet']
    """
    if users_per_file < 1:
        raise SettingError(f"users_per_file={users_per_file}", hint="at least 1")
    from coldhash.scale.dask import check_workers, told_of_loss  # needs the extra `dask`

    check_workers(client)
    path, folder = Path(model_path).resolve(), Path(out_folder).resolve()
    n_users = len(load(path).user_ids)
    _agree(folder, path, {"k": k, "users_per_file": users_per_file, "options": options})
    starts = list(range(0, n_users, users_per_file))
    files = [folder / f"part-{number:06d}.parquet" for number in range(len(starts))]
    missing = [number for number, file in enumerate(files) if not file.exists()]
    done = len(files) - len(missing)
    if progress is not None:
        progress(done, len(files))
    tasks = (
        (str(path), _print_of(path), str(files[n]), starts[n], starts[n] + users_per_file)
        for n in missing
    )
    with told_of_loss():
        for _ in _finished(client, tasks, k, options):
            done += 1
            if progress is not None:
                progress(done, len(files))
    return Batch(files, len(files) - len(missing))


def _finished(client: Client, tasks: Any, k: int, options: dict[str, Any]) -> Any:
    """Keep the workers busy without sending them everything at once; yields as tasks end."""
    from distributed import as_completed

    def submitted() -> Any:
        for task in tasks:
            yield client.submit(write_part, *task, k, options, pure=False)

    waiting = submitted()
    n_threads = max(sum(client.nthreads().values()), 1)
    running = as_completed(list(islice(waiting, AHEAD * n_threads)))
    for future in running:
        future.result()
        following = next(waiting, None)
        if following is not None:
            running.add(following)
        yield future


def write_part(
    path: str, version: str, file: str, start: int, stop: int, k: int, options: dict[str, Any]
) -> None:
    """Answer for the users of some rows, and write the answer in one step. Runs in a worker."""
    import pyarrow.parquet

    model = _model(path, version)
    rows = range(start, min(stop, len(model.user_ids)))
    user_ids = [model.user_ids[row] for row in rows]
    table = model.recommend(user_ids=user_ids, k=k, threads=1, **options).to_arrow()
    with replace_file(file) as target:
        pyarrow.parquet.write_table(table, target)


@lru_cache(maxsize=2)
def _model(path: str, version: str) -> Recommender:
    """Map a model once in each process; another file in its place is another model."""
    if _print_of(Path(path)) != version:
        raise SourceError(f"{path} is not the same on every machine, or has changed")
    return load(path, verify=False)


def _print_of(path: Path) -> str:
    """Give the checksum that a model file ends with: what it is known by."""
    with open_regular(path) as file:
        file.seek(-32, os.SEEK_END)
        return file.read().hex()


def _agree(folder: Path, path: Path, question: dict[str, Any]) -> None:
    """Refuse a folder that holds answers of another model or to another question."""
    text = json.dumps(question, sort_keys=True, default=repr)
    asked = {
        "model": _print_of(path),
        "question": hashlib.sha256(text.encode()).hexdigest(),
        "asked": json.loads(text),
    }
    note = folder / "batch.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if note.exists():
            before = json.loads(note.read_text(encoding="utf-8"))
            if {n: before.get(n) for n in ("model", "question")} != {
                n: asked[n] for n in ("model", "question")
            }:
                raise SettingError(
                    f"{folder} holds answers of another model or to another question",
                    hint="name an empty folder",
                )
            return
        if any(folder.glob("part-*.parquet")):
            raise SettingError(f"{folder} holds other files", hint="name an empty folder")
        replace_text(note, json.dumps(asked, indent=1))
    except ColdhashError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(f"cannot use {folder}: {error}", hint="name another folder") from None
