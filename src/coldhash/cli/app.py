"""The application, the options that commands share, and how results are printed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from coldhash import __version__
from coldhash.errors import SettingError

if TYPE_CHECKING:
    from coldhash.data.dataset import Dataset
    from coldhash.data.plan import FeaturePlan
    from coldhash.registry import Model
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

app = typer.Typer(
    help="Recommend to people you have never seen.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, Option("--json", help="Print one JSON document.")]
DataFolder = Annotated[Path | None, Option("--data", help="The folder that holds the data sets.")]
ModelFile = Annotated[Path, Argument(help="A model file made by `coldhash fit`.")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(__version__)
        raise typer.Exit


@dataclass(frozen=True)
class DataOptions:
    """The options that name the data: a known data set, or the user's own tables.

    A command takes all of them by a parameter `source: DataOptions`; see `with_data_options`.
    """

    dataset: Annotated[
        str | None, Option(help="Known data: ml-1m, ml-100k, book-crossing, sample.")
    ] = None
    data: Annotated[Path | None, Option(help="The folder or zip archive of the data set.")] = None
    ratings: Annotated[Path | None, Option(help="Your ratings: CSV, TSV, JSON lines, Parquet.")] = (
        None
    )
    users: Annotated[Path | None, Option(help="Your own user table.")] = None
    items: Annotated[Path | None, Option(help="Your own item table.")] = None
    column: Annotated[
        list[str] | None,
        Option(help="The column of user_id, item_id, rating or timestamp.", metavar="ROLE=NAME"),
    ] = None
    duplicates: Annotated[
        str | None,
        Option(help="For repeated rows: error (ratings), sum (counts, events), last, mean, max."),
    ] = None
    feedback: Annotated[
        str | None, Option(help="What values are: ratings, counts or events; guessed.")
    ] = None
    favourite: Annotated[
        str | None, Option(help="A favourite is: 4 (and more), 60% (of the scale), user-mean.")
    ] = None
    plan: Annotated[Path | None, Option(help="A feature plan in TOML.")] = None
    encoding: Annotated[str, Option(help="The encoding of your own text files.")] = "utf-8"

    def read(self, raw: bool = False) -> Dataset:
        """Read the data; `raw` is passed to a known data set."""
        from coldhash.data.dataset import Dataset
        from coldhash.data.sources import read
        from coldhash.data.tables import TableFile

        if (self.dataset is None) == (self.ratings is None):
            raise SettingError("no data, or two", hint="either --dataset NAME or --ratings FILE")
        plan = self.read_plan()
        if self.dataset is not None:
            options: dict[str, Any] = {"feedback": self.feedback, "favourite": self.favourite}
            known = read(self.dataset, self.data, **options, **({"raw": True} if raw else {}))
            return known if plan is None else known.with_plan(plan)
        tables = [
            None if file is None else TableFile(path=file, encoding=self.encoding)
            for file in (self.ratings, self.users, self.items)
        ]
        return Dataset.from_tables(
            *tables,  # type: ignore[arg-type]  # ratings are given
            columns=self.read_columns(),
            plan=plan,
            **self.rules(),
        )

    def rules(self) -> dict[str, Any]:
        """Return how rows are read, as texts that are checked where they are used."""
        return {name: getattr(self, name) for name in ("duplicates", "feedback", "favourite")}

    def read_plan(self) -> FeaturePlan | None:
        """Read the feature plan, if there is one."""
        from coldhash.data.plan import FeaturePlan

        return None if self.plan is None else FeaturePlan.from_toml(self.plan)

    def read_columns(self) -> dict[str, str | None]:
        """Return the column of each role that `--column` names."""
        pairs = parse_pairs(self.column, "--column", hint="ROLE=NAME, e.g. user_id=customer")
        return {role: name or None for role, name in pairs}


def with_data_options(
    command: Callable[..., None], without: tuple[str, ...] = ()
) -> Callable[..., None]:
    """Replace a command's parameter `source: DataOptions` by one option for each field."""
    own = inspect.signature(command, eval_str=True).parameters
    fields = inspect.signature(DataOptions, eval_str=True).parameters
    options = [option for name, option in fields.items() if name not in without]

    @wraps(command)
    def run(**values: Any) -> None:
        source = DataOptions(**{option.name: values.pop(option.name) for option in options})
        command(source=source, **values)

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name in own
        for parameter in (options if name == "source" else [own[name]])
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def parse_pairs(texts: list[str] | None, option: str, hint: str) -> list[tuple[str, str]]:
    """Split the texts NAME=VALUE that an option was given."""
    pairs = []
    for text in texts or []:
        name, mark, value = text.partition("=")
        if not mark:
            raise SettingError(f"{option} {text!r}", hint=hint)
        pairs.append((name, value))
    return pairs


def find_method(name: str) -> type[Model]:
    """Return the settings class of a method."""
    from coldhash.registry import MODELS

    if name not in MODELS:
        raise SettingError(f"no method is called {name!r}", hint=f"one of {', '.join(MODELS)}")
    return MODELS[name]


# what a terminal executes instead of showing: control characters, and those that reorder text
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_MAX_CELL = 200  # characters of an id or title in a table


def printable(text: str) -> str:
    """Escape control characters, which data may hold, as JSON does."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def cell(value: object) -> str:
    """Return a value as text for a table: without control characters, and not too long."""
    if isinstance(value, float):
        return f"{value:.4g}"
    text = "" if value is None else str(value)
    return printable(text if len(text) <= _MAX_CELL else text[: _MAX_CELL - 1] + "…")


def print_rows(rows: Iterable[Mapping[str, object]], columns: Iterable[str]) -> None:
    """Print a line for each row: those of the columns that it has, separated by tabs."""
    for row in rows:
        print("\t".join(cell(row[name]) for name in columns if name in row))


def print_json(document: object) -> None:
    """Print one JSON document; JSON itself escapes only some of the control characters."""
    print(printable(json.dumps(document, ensure_ascii=False)))


def print_result(document: object, text: object, as_json: bool) -> None:
    """Print a result as a JSON document, or as text."""
    if as_json:
        print_json(document)
    else:
        print(text)


@contextmanager
def progress_bar(title: str, in_bytes: bool = False) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr while the block runs.

    Yields a function to call with the amount done, the total, and optionally a text to show.
    """
    from rich import console, progress

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn() if in_bytes else progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console.Console(stderr=True)) as bars:
        bar = bars.add_task(printable(title), total=None)

        def update(done: float, total: float | None = None, text: str = "") -> None:
            description = printable(f"{title}: {text}" if text else title)
            bars.update(bar, completed=done, total=total, description=description)

        yield update
