"""MFDCF against popularity on every data set, dense or sparse, of ratings or purchases."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from coldhash.evaluate import UserHits
from coldhash.evaluate.compare import arrange
from coldhash.lab.figures import Line, Panel, draw
from coldhash.lab.reproduce import report
from coldhash.lab.reproduce.report import DATASETS, Section, format_accuracy, method_name
from coldhash.lab.results_log import Results
from coldhash.render import format_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KS = (5, 10, 20, 50)
SCORES = ("real", "hamming")
_DIAL = "dial"  # the label of the runs that vary `popularity`


@dataclass(frozen=True)
class Cell:
    """MFDCF against popularity at one k, splits pooled.

    `p` is the chance of a difference so far below 0 if there were none: a normal approximation,
    in which the pairs of a user, in all splits, are one draw.
    """

    data: str
    shots: int
    score: str
    k: int
    accuracy: float
    popularity: float
    low: float
    high: float
    p: float

    @property
    def ratio(self) -> float:
        """Accuracy in terms of that of popularity."""
        return self.accuracy / self.popularity


def anywhere_section(results: Results) -> Section:
    """Compare with popularity on every data set, and what the popularity dial does."""
    matrix = Results([row for row in results.rows if row["label"] != _DIAL])
    panels, rows = [], []
    for name, of_data in by_data(matrix):
        lines = []
        for method, part in report.by_method(of_data):
            for n, each in part.by("shots"):
                means = [each.mean(f"accuracy@{k}") for k in KS]
                given = report.ORDERS[each.rows[0]["given_by"]]
                rows.append([name, method, n, given, *map(format_accuracy, means)])
            at_10 = [each.mean("accuracy@10") for _, each in part.by("shots")]
            lines.append(Line(method, cast(list[int], part.values("shots")), at_10))
        panels.append(Panel(name, "events given", "Accuracy@10", lines))
    head = ["data", "method", "events", "given", *(f"@{k}" for k in KS)]
    figures = [("anywhere", draw("Against popularity", panels, 4, "64 bits, fair ties"))]
    parts = [_describe_cells(list(make_cells(matrix))), format_table(head, rows)]
    dial = results.where(label=_DIAL, shots=0)
    if dial.rows:
        table, figure = _show_dial(dial)
        parts.append(f"`popularity` at request time, strangers:\n\n{table}")
        figures.append(("dial", figure))
    title = "MFDCF against popularity on every data set"
    return Section("anywhere", title, "\n\n".join(parts), figures)


def by_data(results: Results) -> Iterator[tuple[str, Results]]:
    """Iterate over data sets, whole and thinned."""
    for dataset, of_data in results.by("dataset"):
        for n, part in of_data.by("user_ratings"):
            yield DATASETS[dataset] + (f", {n} a user" if n else ""), part


def make_cells(results: Results) -> Iterator[Cell]:
    """Compare MFDCF with popularity for every data set, number of events, score and k."""
    for data, of_data in by_data(results):
        for n, part in of_data.by("shots"):
            control = part.where(label="popularity")
            for score in SCORES:
                ours = part.where(label="mfdcf", score=score)
                for k in KS:
                    yield make_cell(data, cast(int, n), score, k, ours.hits(k), control.hits(k))


def make_cell(
    data: str, shots: int, score: str, k: int, ours: Sequence[UserHits], popular: Sequence[UserHits]
) -> Cell:
    """Compute the pooled difference to popularity and its 95% interval over users."""
    (hits, pairs_of), (control, _) = (arrange(side).sum(axis=2) for side in (ours, popular))
    own_hits, control_hits, pairs = hits.sum(), control.sum(), pairs_of.sum()
    difference = (own_hits - control_hits) / pairs
    residuals = hits - control - difference * pairs_of
    error = math.sqrt(residuals @ residuals) / pairs
    p = 0.5 * math.erfc(-difference / (error * math.sqrt(2))) if error else 1.0
    low, high = difference - 1.96 * error, difference + 1.96 * error
    return Cell(data, shots, score, k, own_hits / pairs, control_hits / pairs, low, high, p)


def find_below(cells: Sequence[Cell], level: float = 0.05) -> list[Cell]:
    """Return the cells significantly below popularity, by Holm's rule over all of them."""
    ordered = sorted(cells, key=lambda cell: cell.p)
    for place, cell in enumerate(ordered):
        if cell.p > level / (len(cells) - place):
            return ordered[:place]
    return ordered


def geometric_mean(cells: Sequence[Cell]) -> float:
    """Average the ratios to popularity."""
    return math.exp(np.mean([math.log(max(cell.ratio, 1e-9)) for cell in cells]))


def _describe_cells(cells: Sequence[Cell]) -> str:
    """Return a sentence on where MFDCF is significantly below popularity."""
    below, lines = find_below(cells), []
    for score in SCORES:
        own = [cell for cell in cells if cell.score == score]
        named = [f"{c.data}, {c.shots} given, @{c.k}" for c in below if c.score == score]
        lines.append(
            f"- {method_name('mfdcf', score)}: {len(named)} of {len(own)} cells significantly below"
            f" popularity{': ' if named else ''}{'; '.join(named)}. Geometric mean of the ratios:"
            f" {geometric_mean(own):.3f}."
        )
    lines.append(
        "\nA cell is one data set, number of events given and k; one-sided paired tests over users,"
        " splits pooled, by Holm's rule over all cells."
    )
    return "\n".join(lines)


def _show_dial(results: Results) -> tuple[str, Figure]:
    """Show what less popularity costs, and what it brings."""
    rows, panels = [], []
    for dataset, of_data in results.by("dataset"):
        lines = []
        for score, of_score in of_data.by("score"):
            points = []
            for dial, part in of_score.by("popularity"):
                lists = part.mean("distinct_lists@10") * part.mean("cold_users")
                distinct = min(lists / part.mean("profiles"), 1.0)
                accuracy, coverage = part.mean("accuracy@10"), part.mean("coverage@10")
                points.append((100 * coverage, accuracy))
                cells = [format_accuracy(accuracy), f"{coverage:.3f}", f"{distinct:.2f}"]
                name = method_name("mfdcf", score)
                rows.append([DATASETS[dataset], name, f"{dial:g}", *cells])
            lines.append(Line(method_name("mfdcf", score), *zip(*points, strict=True)))
        panels.append(Panel(DATASETS[dataset], "coverage@10 in percent", "Accuracy@10", lines))
    head = ["data", "scored", "popularity", "Accuracy@10", "coverage", "lists / profiles"]
    note = "popularity from 0 (right) to 1 (left)"
    return format_table(head, rows), draw("Accuracy against coverage", panels, 1, note, (6.0, 3.4))
