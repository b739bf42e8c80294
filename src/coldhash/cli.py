"""The command line: parse, call, print. Data goes to stdout, talk to stderr.

Exit code 2 for a mistake of the user's, 1 for one of ours. Imports of weight are made inside the
commands, so that `--help` is quick.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldhash import __version__
from coldhash.errors import ColdhashError, SettingError

if TYPE_CHECKING:
    from coldhash.data.dataset import Dataset

app = typer.Typer(
    help="Recommend to people you have never seen.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Name = Annotated[
    str | None,
    typer.Option("--dataset", help="A known data set: ml-1m, ml-100k, book-crossing, sample."),
]
DataPath = Annotated[
    Path | None, typer.Option("--data", help="The folder or zip archive that holds the data set.")
]
RatingsFile = Annotated[
    Path | None, typer.Option("--ratings", help="Your own ratings: CSV, TSV, JSON lines, Parquet.")
]
UsersFile = Annotated[Path | None, typer.Option("--users", help="Your own user table.")]
ItemsFile = Annotated[Path | None, typer.Option("--items", help="Your own item table.")]
ColumnNames = Annotated[
    list[str] | None,
    typer.Option(
        "--column", help="ROLE=NAME for user_id, item_id, rating or timestamp.", metavar="ROLE=NAME"
    ),
]
DuplicateRule = Annotated[
    str, typer.Option(help="A user rated an item twice: error, last, mean or max.")
]
PlanFile = Annotated[Path | None, typer.Option("--plan", help="A feature plan in TOML.")]
Encoding = Annotated[str, typer.Option(help="The encoding of your own text files.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


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
    from coldhash.describe import describe as describe_data

    opened = _open(dataset, data, ratings, users, items, column, duplicates, plan, encoding, raw)
    facts = describe_data(opened)
    print(json.dumps(facts, ensure_ascii=False) if as_json else _in_words(facts))


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
                progress=lambda done, total: bars.update(bar, completed=done, total=total),
            )
        )


@app.command()
def demo() -> None:
    """Show the embedded sample data."""
    from coldhash.data.sources import read
    from coldhash.describe import describe as describe_data

    print("This is the embedded sample: made-up users with made-up tastes.", file=sys.stderr)
    print(_in_words(describe_data(read("sample"))))


def _open(
    name: str | None,
    path: Path | None,
    ratings: Path | None,
    users: Path | None,
    items: Path | None,
    column: list[str] | None,
    duplicates: str,
    plan: Path | None,
    encoding: str,
    raw: bool = False,
) -> Dataset:
    """Open a known data set, or the user's own tables."""
    from coldhash.data.dataset import Dataset
    from coldhash.data.plan import FeaturePlan
    from coldhash.data.sources import read
    from coldhash.data.tables import TableFile

    if (name is None) == (ratings is None):
        raise SettingError("say which data", hint="either --dataset NAME or --ratings FILE")
    chosen = None if plan is None else FeaturePlan.from_toml(plan)
    if name is not None:
        opened = read(name, path, **({"raw": True} if raw else {}))
        return opened if chosen is None else opened.with_plan(chosen)
    tables = [
        None if file is None else TableFile(path=file, encoding=encoding)
        for file in (ratings, users, items)
    ]
    return Dataset.from_tables(
        *tables,
        columns=dict(_role(text) for text in column or []),
        plan=chosen,
        duplicates=duplicates,  # type: ignore[arg-type]  # checked where it is used
    )


def _role(text: str) -> tuple[str, str | None]:
    role, mark, name = text.partition("=")
    if not mark:
        raise SettingError(f"--column {text!r}", hint="ROLE=NAME, e.g. user_id=customer")
    return role, name or None


def _in_words(facts: dict[str, Any]) -> str:
    low, high = facts["scale"]
    lines = [
        f"{facts['name']}",
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
                f"  {side} column {name}: {column['type']}{distinct}, {column['missing']:,} missing"
            )
    for name, group in facts["groups"].items():
        lines.append(f"  group {name}: {group['width']} wide, {group['users']:,} users have it")
    lines += ["", "feature plan:", *("  " + line for line in facts["plan"].splitlines())]
    return "\n".join(lines).rstrip()


def main() -> None:
    """Run the command line; a mistake of the user's is told in one line."""
    try:
        app()
    except ColdhashError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
