"""Commands about data: describe, fetch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from coldhash.cli.app import (
    AsJson,
    ColumnNames,
    DataPath,
    DuplicateRule,
    Encoding,
    ItemsFile,
    Name,
    PlanFile,
    RatingsFile,
    UsersFile,
    app,
    cell,
    open_data,
    print_json,
    printable,
)
from coldhash.errors import SettingError


@app.command()
def describe(
    dataset: Name = None,
    data: DataPath = None,
    ratings: RatingsFile = None,
    users: UsersFile = None,
    items: ItemsFile = None,
    column: ColumnNames = None,
    duplicates: DuplicateRule = "error",
    plan: PlanFile = None,
    encoding: Encoding = "utf-8",
    raw: Annotated[bool, typer.Option("--raw", help="Book-Crossing without its filter.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show counts, sparsity, columns, feature groups and what is missing."""
    from coldhash.features.describe import describe as describe_data

    opened = open_data(
        dataset, data, ratings, users, items, column, duplicates, plan, encoding, raw
    )
    facts = describe_data(opened)
    if as_json:
        print_json(facts)
    else:
        print(in_words(facts))


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="ml-1m, ml-100k or book-crossing.")],
    to: Annotated[Path, typer.Option("--to", help="The folder to put it in.")],
    source: Annotated[
        Path | None, typer.Option("--from", help="Import this local archive instead.")
    ] = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="With --from: accept another edition.")
    ] = False,
) -> None:
    """Download a known data set, with checksum and resume, or import a local archive."""
    from coldhash.data.fetch import ARCHIVES, import_archive
    from coldhash.data.fetch import fetch as download

    if name not in ARCHIVES:
        raise SettingError(f"no data set is called {name!r}", hint=f"one of {', '.join(ARCHIVES)}")
    archive = ARCHIVES[name]
    print(archive.about, file=sys.stderr)
    if source is not None:
        print(import_archive(archive, source, to, check=not unchecked))
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        bar = bars.add_task(name, total=None)
        print(
            download(
                archive,
                to,
                report=lambda done, total: bars.update(bar, completed=done, total=total),
            )
        )


def in_words(facts: dict[str, Any]) -> str:
    """Say what `describe` found, for people."""
    low, high = facts["scale"]
    lines = [
        cell(facts["name"]),
        f"  users    {facts['users']:>10,}  ({facts['users_described']:,} described, "
        f"{facts['users_with_ratings']:,} with ratings)",
        f"  items    {facts['items']:>10,}  ({facts['items_described']:,} listed, "
        f"{facts['items_rated']:,} rated)",
        f"  ratings  {facts['ratings']:>10,}  from {low:g} to {high:g}, "
        f"{facts['sparsity']:.2f}% sparse",
    ]
    for side in ("user", "item"):
        for name, column in facts[f"{side}_columns"].items():
            distinct = "" if column["distinct"] is None else f", {column['distinct']:,} distinct"
            lines.append(
                f"  {side} column {cell(name)}: {column['type']}{distinct},"
                f" {column['missing']:,} missing"
            )
    for name, group in facts["groups"].items():
        lines.append(
            f"  group {cell(name)}: {group['width']} wide, {group['users']:,} users have it"
        )
    lines += ["", "feature plan:", *("  " + printable(line) for line in facts["plan"].split("\n"))]
    return "\n".join(lines).rstrip()
