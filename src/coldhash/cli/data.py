"""Commands about data: describe, fetch, prepare."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from coldhash.cli.app import AsJson, DataOptions, File, TableOptions, command
from coldhash.cli.output import cell, print_result, printable, progress_bar
from coldhash.errors import SettingError


@command
def describe(
    source: DataOptions,
    raw: Annotated[bool, Option("--raw", help="Book-Crossing without its filter.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show counts, sparsity, columns, feature groups and what is missing."""
    from coldhash.features.describe import describe as describe_data

    facts = describe_data(source.read(raw))
    print_result(facts, _format_facts(facts), as_json)


@command
def fetch(
    name: Annotated[str, Argument(help="ml-1m, ml-100k or book-crossing.")],
    to: Annotated[Path, Option(help="The folder to put it in.")],
    archive: Annotated[File, Option("--from", help="Import a local archive instead.")] = None,
    unchecked: Annotated[
        bool, Option("--unchecked", help="With --from: accept another edition.")
    ] = False,
) -> None:
    """Download a known data set, with checksum and resume, or import a local archive."""
    from coldhash.data.fetch import ARCHIVES, import_archive
    from coldhash.data.fetch import fetch as download

    if name not in ARCHIVES:
        raise SettingError(f"no data set is called {name!r}", hint=f"one of {', '.join(ARCHIVES)}")
    known = ARCHIVES[name]
    print(known.about, file=sys.stderr)
    if archive is not None:
        print(import_archive(known, archive, to, check=not unchecked))
        return
    with progress_bar(name, in_bytes=True) as update:
        path = download(known, to, report=update)
    print(path)


@command
def prepare(
    ratings: Annotated[Path, Option(help="Ratings: CSV, TSV or Parquet.")],
    out: Annotated[Path, Option(help="The folder to make.")],
    source: TableOptions,
    part_users: Annotated[int | None, Option(help="Users in a partition.")] = None,
    memory: Annotated[str, Option(help="The memory to use.")] = "2GB",
) -> None:
    """Sort ratings of any size into partitions; run again, it resumes."""
    from coldhash.data.dataset import PART_USERS
    from coldhash.scale import prepare as prepare_partitions

    with progress_bar("preparing") as update:
        prepared = prepare_partitions(
            ratings,
            out,
            source.users,
            source.items,
            **source.settings(),
            part_users=PART_USERS if part_users is None else part_users,
            memory=memory,
            progress=lambda step, done, total: update(done, total, step),
        )
    print(f"{out}: {prepared.n_ratings:,} ratings in {len(prepared.ends) - 1:,} partitions")


def _format_facts(facts: dict[str, Any]) -> Iterator[str]:
    low, high = facts["scale"]
    yield cell(facts["name"])
    yield (
        f"  users    {facts['users']:>10,}  ({facts['users_described']:,} described, "
        f"{facts['users_with_ratings']:,} with ratings)"
    )
    yield (
        f"  items    {facts['items']:>10,}  ({facts['items_described']:,} listed, "
        f"{facts['items_rated']:,} rated)"
    )
    yield (
        f"  ratings  {facts['ratings']:>10,}  from {low:g} to {high:g}, "
        f"{facts['sparsity']:.2f}% sparse"
    )
    yield (
        f"  feedback {facts['feedback']:>10}  {facts['favourites']:,} favourites "
        f"({facts['favourite']})"
    )
    for side in ("user", "item"):
        for name, column in facts[f"{side}_columns"].items():
            distinct = "" if column["distinct"] is None else f", {column['distinct']:,} distinct"
            missing = f"{column['missing']:,} missing"
            yield f"  {side} column {cell(name)}: {column['type']}{distinct}, {missing}"
    for name, group in facts["groups"].items():
        yield f"  group {cell(name)}: {group['width']} wide, {group['users']:,} users have it"
    yield from ("", "feature plan:")
    yield from ("  " + printable(line) for line in facts["plan"].rstrip().split("\n"))
