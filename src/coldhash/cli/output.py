"""How results, errors and progress are printed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

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


def format_row(row: Mapping[str, object], columns: Iterable[str]) -> str:
    """Return those of the columns that a row has, separated by tabs."""
    return "\t".join(cell(row[name]) for name in columns if name in row)


def print_result(document: object, lines: Iterable[object], as_json: bool) -> None:
    """Print a result as a JSON document, in which an iterator is a list, or as lines of text.

    JSON itself escapes only some of the control characters.
    """
    if as_json:
        lines = [printable(json.dumps(document, ensure_ascii=False, default=list))]
    for line in lines:
        print(line)


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
