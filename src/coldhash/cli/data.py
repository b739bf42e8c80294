"""Commands about data: describe, fetch, prepare."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from coldhash.cli.app import AsJson, DataOptions, File, TableOptions, command
from coldhash.cli.output import format_facts, print_result, progress_bar
from coldhash.errors import check_choice


@command
def describe(source: DataOptions, as_json: AsJson = False) -> None:
    """Show counts, sparsity, columns, feature groups and what is missing."""
    from coldhash.features.describe import describe as describe_data

    facts = describe_data(source.read())
    print_result(facts, format_facts(facts), as_json)


@command
def fetch(
    name: Annotated[str, Argument(help="ml-1m, ml-100k or book-crossing.")],
    to: Annotated[Path, Option(help="The folder to put it in.")],
    archive: Annotated[File, Option("--from", help="Import a local archive instead.")] = None,
) -> None:
    """Download a known data set, with checksum and resume, or import a local archive."""
    from coldhash.data.fetch import ARCHIVES, import_archive
    from coldhash.data.fetch import fetch as download

    check_choice("name", name, ARCHIVES)
    known = ARCHIVES[name]
    print(known.about, file=sys.stderr)
    if archive is not None:
        print(import_archive(known, archive, to))
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
    from coldhash.scale import prepare as prepare_partitions

    with progress_bar("preparing") as update:
        prepared = prepare_partitions(
            ratings,
            out,
            source.users,
            source.items,
            **source.settings(),
            part_users=part_users,
            memory=memory,
            progress=lambda step, done, total: update(done, total, step),
        )
    print(f"{out}: {prepared.n_ratings:,} ratings in {len(prepared.ends) - 1:,} partitions")
