"""Commands and options for data larger than memory: prepare, --parts, --dask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from coldhash.cli.app import (
    ColumnNames,
    DuplicateRule,
    ItemsFile,
    PlanFile,
    UsersFile,
    app,
    role_of,
)
from coldhash.errors import SettingError

PartsFolder = Annotated[
    Path | None, typer.Option("--parts", help="A folder that `coldhash prepare` made.")
]
MemoryLimit = Annotated[
    str | None, typer.Option("--memory", help="With --parts: what may be used, such as 2GB.")
]
DaskAddress = Annotated[
    str | None,
    typer.Option("--dask", help="Fit on a Dask cluster: its address, or `local`."),
]


@app.command()
def prepare(
    ratings: Annotated[Path, typer.Option("--ratings", help="Ratings: CSV, TSV or Parquet.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to make.")],
    users: UsersFile = None,
    items: ItemsFile = None,
    column: ColumnNames = None,
    duplicates: DuplicateRule = "error",
    plan: PlanFile = None,
    part_users: Annotated[
        int | None, typer.Option("--part-users", help="Users of one partition.")
    ] = None,
    memory: Annotated[str, typer.Option("--memory", help="What may be used.")] = "2GB",
) -> None:
    """Sort ratings of any size into partitions; started again, it goes on."""
    from rich.console import Console
    from rich.progress import Progress

    from coldhash.data.dataset import PART_USERS
    from coldhash.data.plan import FeaturePlan
    from coldhash.scale import prepare as make

    with Progress(console=Console(stderr=True)) as bars:
        bar = bars.add_task("reading")

        def tell(what: str, done: int, of: int) -> None:
            bars.update(bar, description=what, completed=done, total=of)

        prepared = make(
            ratings,
            out,
            users,
            items,
            columns=dict(role_of(text) for text in column or []),
            plan=None if plan is None else FeaturePlan.from_toml(plan),
            duplicates=duplicates,  # type: ignore[arg-type]  # checked where it is used
            part_users=PART_USERS if part_users is None else part_users,
            memory=memory,
            progress=tell,
        )
    print(f"{out}: {prepared.n_ratings:,} ratings in {len(prepared.ends) - 1:,} partitions")


def open_parts(folder: Path, *others: Any) -> Any:
    """Open prepared data; other data must not be named beside it."""
    from coldhash.scale import Prepared

    dataset, data, ratings, users, items, column, _, plan, _ = others
    if any(one is not None for one in (dataset, data, ratings, users, items, column, plan)):
        raise SettingError(
            "--parts already is the data", hint="tables and plans are given to `coldhash prepare`"
        )
    return Prepared.open(folder)


@contextmanager
def place_of_fit(
    model: str, out: Path, parts: Path | None, memory: str | None, dask: str | None
) -> Iterator[dict[str, Any]]:
    """Say where a fit runs, as the argument for `fit`: nothing if in memory."""
    if model != "mfdcf" and (parts is not None or dask is not None):
        raise SettingError(f"{model} fits in memory only", hint="--model mfdcf")
    if memory is not None and (parts is None or dask is not None):
        raise SettingError("--memory is for fits from disk", hint="--parts DIR, without --dask")
    if dask is not None:
        from coldhash.scale.dask import connect

        with connect(dask) as client:
            yield {"on": client}
    elif parts is not None:
        from coldhash.scale import Disk

        yield {"on": Disk(out.with_name(f"{out.name}.work"), memory)}
    else:
        yield {}
