"""The application, and the options that commands share."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import coldhash as ch  # whose names are imported when they are used
from coldhash.errors import SettingError, check_choice
from coldhash.files import draft_folder

if TYPE_CHECKING:
    from coldhash.registry import Model

app = typer.Typer(
    help="Recommend to people you have never seen.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

File = Path | None
Text = str | None
Texts = list[str] | None
Arguments = dict[str, Any]  # of a function of the library, by name
AsJson = Annotated[bool, Option("--json", help="Print one JSON document.")]
ColumnNames = Annotated[
    Texts,
    Option(
        help="The column of user_id, item_id, rating, timestamp, event or title.",
        metavar="ROLE=NAME",
    ),
]
ModelFile = Annotated[Path, Argument(help="A model file made by `coldhash fit`.")]


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print(ch.__version__)
        raise typer.Exit


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Register a command; a parameter that is a dataclass becomes one option for each field."""
    own = _parameters(function)
    kinds = {name: each.annotation for name, each in own.items()}
    groups: Arguments = {name: kind for name, kind in kinds.items() if is_dataclass(kind)}
    chosen = {name: _parameters(group) for name, group in groups.items()}
    options = [chosen.get(name, {name: each}).values() for name, each in own.items()]
    parameters = [each.replace(kind=each.KEYWORD_ONLY) for each in chain.from_iterable(options)]

    @wraps(function)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{option: values.pop(option) for option in chosen[name]})
        function(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return app.command()(run)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function, eval_str=True).parameters


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The options about the user's own tables, besides the ratings."""

    users: Annotated[File, Option(help="Your own user table.")] = None
    items: Annotated[File, Option(help="Your own item table.")] = None
    column: ColumnNames = None
    duplicates: Annotated[
        Text, Option(help="Repeated rows: error, last, mean, max or sum; by --feedback.")
    ] = None
    feedback: Annotated[Text, Option(help="Values are ratings, counts or events; guessed.")] = None
    favourite: Annotated[
        Text, Option(help="A favourite is: 4 (and more), 60% (of the scale), user-mean.")
    ] = None
    event_weight: Annotated[
        Texts, Option(help="What a type of events counts: purchase=5.", metavar="TYPE=WEIGHT")
    ] = None
    plan: Annotated[File, Option(help="A feature plan in TOML.")] = None

    def settings(self) -> Arguments:
        """Return the arguments of `Dataset.from_tables` and `prepare` about columns and values."""
        weights = parse_pairs(self.event_weight, "--event-weight", hint="TYPE=WEIGHT, purchase=5")
        columns = {"columns": parse_columns(self.column), "event_weights": dict(weights) or None}
        same = ("plan", "duplicates", "feedback", "favourite")
        return columns | {name: getattr(self, name) for name in same}


@dataclass(frozen=True, kw_only=True)
class DataOptions(TableOptions):
    """The options that name the data: a known data set, or the user's own tables."""

    dataset: Annotated[Text, Option(help="A known one, such as ml-1m or sample.")] = None
    data: Annotated[File, Option(help="The folder or zip archive of the data set.")] = None
    ratings: Annotated[File, Option(help="Your ratings: CSV, TSV, JSON lines, Parquet.")] = None
    encoding: Annotated[str, Option(help="The encoding of your own text files.")] = "utf-8"
    names: Annotated[Text, Option(help="Columns of ratings without a header line: A,B,...")] = None

    @property
    def is_given(self) -> bool:
        """Whether a data set or tables are named."""
        return replace(self, data=None) != DataOptions()

    def read(self) -> ch.Dataset:
        """Read the data."""
        if (self.dataset is None) == (self.ratings is None):
            raise SettingError("no data, or two", hint="either --dataset NAME or --ratings FILE")
        if self.dataset is not None:
            rules: Arguments = {"feedback": self.feedback, "favourite": self.favourite}
            known = ch.read(self.dataset, self.data, **rules)
            return known if self.plan is None else known.with_plan(self.plan)
        own = (self.ratings, self.users, self.items)
        tables: list[Any] = [
            file and ch.TableFile(path=file, encoding=self.encoding) for file in own
        ]
        if self.names is not None:
            tables[0] = replace(tables[0], names=tuple(self.names.split(",")))
        return ch.Dataset.from_tables(*tables, **self.settings())


def parse_columns(texts: Texts) -> dict[str, str | None]:
    """Split the texts ROLE=NAME of --column; None: there is no such column."""
    pairs = parse_pairs(texts, "--column", hint="ROLE=NAME, e.g. user_id=customer")
    return {role: name or None for role, name in pairs}


def parse_pairs(texts: Texts, option: str, hint: str) -> list[tuple[str, str]]:
    """Split the texts NAME=VALUE that an option was given."""
    for text in texts or ():
        if "=" not in text:
            raise SettingError(f"{option} {text!r}", hint=hint)
    return [(name, value) for name, _, value in (text.partition("=") for text in texts or ())]


def parse_json(text: str) -> Any:
    """Read JSON; what is not JSON is a text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def parse_where(where: Texts) -> dict[str, object] | None:
    """Read the texts COLUMN=VALUE of --where."""
    chosen: dict[str, list[object]] = {}
    for name, text in parse_pairs(where, "--where", hint="COLUMN=VALUE"):
        chosen.setdefault(name, []).append(parse_json(text))
    return {name: each[0] if len(each) == 1 else each for name, each in chosen.items()} or None


def split(text: str | None) -> list[str] | None:
    """Split a text at its commas."""
    return text.split(",") if text else None


def read_file(path: Path, name: str) -> str:
    """Return the text of a file that an option names; an error begins with `name`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{name}: {error}") from None


def check_out(out: Path, *endings: str) -> None:
    """Raise an error before the work begins if a file cannot be written at its end."""
    if endings and out.suffix not in endings:
        raise SettingError(f"--out {out}", hint=f"a name that ends in {' or '.join(endings)}")
    with draft_folder(out):
        if out.is_dir():
            raise SettingError(f"--out {out}: a folder", hint="name a file")


def find_method(name: str) -> type[Model]:
    """Return the settings class of a method."""
    check_choice("model", name, ch.MODELS)
    return ch.MODELS[name]
