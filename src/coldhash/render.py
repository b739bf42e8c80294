"""Rows as HTML, Markdown and CSV: how results are shown, and written to files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from coldhash.errors import SettingError
from coldhash.files import replace_text


def html_table(rows: Iterable[Iterable[object]]) -> str:
    """Return rows as an HTML table, in which all values are escaped."""
    lines = ("".join(f"<td>{escape(str(value))}</td>" for value in row) for row in rows)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def format_table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Format a table in Markdown: text to the left, numbers to the right."""
    lines: list[Sequence[object]] = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def write_rows(rows: Sequence[Mapping[str, object]], path: str | Path) -> None:
    """Write rows of named values as CSV or Markdown, by the suffix; what a row lacks is empty."""
    if Path(path).suffix not in (".csv", ".md"):
        raise SettingError(f"cannot write {path}", hint="a name that ends in .csv or .md")
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [["" if row.get(name) is None else row[name] for name in names] for row in rows]
    if Path(path).suffix == ".csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([names, *cells])
        replace_text(path, text.getvalue())
    else:
        replace_text(path, format_table(names, [[*map(_cell, row)] for row in cells]) + "\n")


def _cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value).replace("|", "\\|")
