"""What commands share: the application, options, how data is opened, how text is printed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldhash import __version__
from coldhash.errors import SettingError

if TYPE_CHECKING:
    from coldhash.data.dataset import Dataset

app = typer.Typer(
    help="Recommend to people you have never seen.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# what a terminal obeys instead of showing: control characters, and those that reorder text
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
LONGEST = 200  # letters of an id or title in a table

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


def printable(text: str) -> str:
    """Escape control characters, which data may hold, as JSON does."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def cell(text: str) -> str:
    """Return a text as it is printed in a table: without control characters, and not too long."""
    return printable(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")


def print_json(document: Any) -> None:
    """Print one JSON document; of control characters JSON itself escapes only some."""
    print(printable(json.dumps(document, ensure_ascii=False)))


def open_data(
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

    def table(file: Path | None) -> TableFile | None:
        return None if file is None else TableFile(path=file, encoding=encoding)

    assert ratings is not None
    return Dataset.from_tables(
        TableFile(path=ratings, encoding=encoding),
        table(users),
        table(items),
        columns=dict(role_of(text) for text in column or []),
        plan=chosen,
        duplicates=duplicates,  # type: ignore[arg-type]  # checked where it is used
    )


def role_of(text: str) -> tuple[str, str | None]:
    """Read ROLE=NAME."""
    role, mark, name = text.partition("=")
    if not mark:
        raise SettingError(f"--column {text!r}", hint="ROLE=NAME, e.g. user_id=customer")
    return role, name or None
