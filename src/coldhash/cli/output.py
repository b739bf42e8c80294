"""How results, errors and progress are printed."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Timer

# what a terminal executes instead of showing: control characters, and those that reorder text
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udc7f\udd00-\udfff]")
_ARGUMENT = re.compile(r"\b(?P<name>[a-z_]+)=(?P<value>'[^']*'|[\w.]+)")
_ROLE = re.compile(r"(?:columns=)?\{'(\w+)': '?([^'}]+)'?\}")  # {'rating': None}
_PYTHON = re.compile(r" \(or TableFile\(.*\)\)")
_USUAL_SECONDS = 2.0
_COLUMNS = ("user_id", "rank", "item_id", "score", "title")
_HIDDEN = ("distance", "fallback")
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


def translate_hint(text: str, options: Collection[str]) -> str:
    """Write the Python arguments in the hint of a message as options, where there are such."""

    def as_option(found: re.Match[str]) -> str:
        name, value = "--" + found["name"].replace("_", "-"), found["value"].strip("'")
        if value == "False" and f"--no{name[1:]}" in options:
            return f"--no{name[1:]}"
        if name not in options:
            return found[0]
        return name if value == "True" else f"{name} {value}"

    message, mark, hint = text.partition("hint: ")
    hint = _PYTHON.sub(" (or --names A,B,...)" if "--names" in options else "", hint)
    if "--ratings" in options:
        hint = hint.replace("Dataset.from_tables(...)", "--ratings FILE")
    if "--column" in options:
        hint = _ROLE.sub(lambda m: f"--column {m[1]}={'' if m[2] == 'None' else m[2]}", hint)
    return message + mark + _ARGUMENT.sub(as_option, hint)


@contextmanager
def note_compilation() -> Iterator[None]:
    """Tell on stderr that functions are compiled, if the block takes longer than usual."""

    def note() -> None:
        module = sys.modules.get("coldhash.arrays.compiled")  # numba may not be needed
        if module is not None and module.compilations.buffer:
            print("compiling, once", file=sys.stderr)

    timer = Timer(_USUAL_SECONDS, note)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def format_row(
    row: Mapping[str, object], labels: Mapping[str, Mapping[str, str]] | None = None
) -> str:
    """Format a recommendation: the columns that it has, separated by tabs; item fields last.

    A value that has a label is shown as such.
    """
    names = [name for name in dict.fromkeys((*_COLUMNS, *row)) if name not in _HIDDEN]
    named = labels or {}
    values = (named.get(n, {}).get(str(row[n]), row[n]) for n in names if n in row)
    return "\t".join(map(cell, values))


def format_facts(facts: Mapping[str, object], indent: str = "") -> Iterator[str]:
    """Format named values as lines; those of a mapping or a text of several lines are indented."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield f"{indent}{cell(name)}:"
            yield from format_facts(value, indent + "  ")
        elif isinstance(value, str) and "\n" in value:
            yield f"{indent}{cell(name)}:"
            yield from (f"{indent}  {printable(line)}" for line in value.rstrip().split("\n"))
        else:
            text = f"{value:,}" if type(value) is int else printable(str(value))
            yield f"{indent}{cell(name)}: {text}"


def print_result(document: object, lines: Iterable[object], as_json: bool) -> None:
    """Print a result as a JSON document, or as lines of text.

    JSON itself escapes only some of the control characters.
    """
    if as_json:
        lines = [printable(json.dumps(document, ensure_ascii=False, default=_as_json))]
    for line in lines:
        print(line)


def _as_json(value: object) -> object:
    """Return an iterator as a list, and a date or another value of a table as a text."""
    return list(value) if isinstance(value, Iterable) else str(value)


@contextmanager
def progress_bar(title: str, in_bytes: bool = False) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr while the block runs.

    Yields a function to call with the amount done, the total, and optionally a text to show.
    """
    from rich import console, markup, progress

    counts = progress.DownloadColumn() if in_bytes else progress.MofNCompleteColumn()
    columns = (*progress.Progress.get_default_columns(), counts, progress.TimeElapsedColumn())
    with progress.Progress(*columns, console=console.Console(stderr=True)) as bars:
        bar = bars.add_task(markup.escape(printable(title)), total=None)

        def update(done: float, total: float | None = None, text: str = "") -> None:
            description = markup.escape(printable(f"{title}: {text}" if text else title))
            bars.update(bar, completed=done, total=total, description=description)

        yield update
