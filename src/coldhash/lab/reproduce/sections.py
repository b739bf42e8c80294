"""What a report is made of: sections with figures, tables and claims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Verdict = Literal["holds", "does not hold", "does not hold under fair ties", "cannot be told"]

NAMES = {
    "mfdcf": "MFDCF",
    "cbfknn": "CBFKNN",
    "zsr": "ZSR",
    "dfm": "DFM",
    "ddl": "DDL",
    "dfm, negatives": "DFM, negatives",
    "ddl, negatives": "DDL, negatives",
    "dcmf": "DCMF",
    "dcmf, rho 0.5": "DCMF, rho 0.5",
    "dcf": "DCF+map",
    "ch": "CH+map",
    "itq": "ITQ+map",
    "bccf": "BCCF+map",
    "pph": "PPH+map",
    "lsh": "LSH",
    "mf": "MF",
    "mf, float": "MF, float",
    "mf, int8": "MF, int8",
}
DATASETS = {"ml-1m": "MovieLens-1M", "book-crossing": "Book-Crossing", "sample": "the sample"}


@dataclass(frozen=True)
class Claim:
    """Something the paper says, and what the runs say of it."""

    text: str
    verdict: Verdict
    evidence: str


@dataclass(frozen=True, eq=False)
class Section:
    """A part of the report."""

    name: str
    title: str
    text: str
    figures: Sequence[tuple[str, Figure]] = ()
    claims: Sequence[Claim] = ()


def shown(label: str) -> str:
    """Name a method as people do."""
    return NAMES.get(label, label)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lay out a table in Markdown: text to the left, figures to the right."""
    lines = [list(head), ["---"] + ["---:"] * (len(head) - 1), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def figure(value: float) -> str:
    """Write an accuracy: four places, without the leading zero."""
    return f"{value:.4f}".removeprefix("0")
