"""MFDCF against popularity on every data set, dense or sparse, of ratings or purchases."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from coldhash.evaluate import UserHits
from coldhash.evaluate.compare import LEVEL, arrange
from coldhash.lab.figures import Line, Panel, draw
from coldhash.lab.reproduce.report import (
    DATASETS,
    KS,
    ORDERS,
    Section,
    make_curves,
    method_name,
)
from coldhash.lab.results import Results
from coldhash.render import format_table

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
    p: float

    @property
    def ratio(self) -> float:
        """Accuracy in terms of that of popularity."""
        return self.accuracy / self.popularity


def anywhere_section(results: Results) -> Section:
    """Compare with popularity on every data set, and show what the popularity dial does."""
    matrix = Results([row for row in results.rows if row["label"] != _DIAL])
    table, panels = make_curves(by_data(matrix), "shots", "events given")
    figures = [("anywhere", draw("Against popularity", panels, 4, "64 bits, fair ties"))]
    parts = [_summarise(matrix), _describe_cells(list(make_cells(matrix))), table]
    dial = Results([row | {"label": "mfdcf"} for row in results.where(label=_DIAL).rows])
    if dial.rows:
        groups = [(DATASETS[dataset], part) for dataset, part in dial.by("dataset")]
        table, _ = make_curves(groups, "popularity", "popularity")
        parts.append(f"`popularity` at request time, strangers:\n\n{table}")
        lines = []
        for score, part in dial.by("score"):
            coverage = [100 * each.mean("coverage@10") for _, each in part.by("popularity")]
            accuracy = [each.mean("accuracy@10") for _, each in part.by("popularity")]
            lines.append(Line(method_name("mfdcf", score), coverage, accuracy))
        panel = Panel(groups[0][0], "coverage@10 in percent", "Accuracy@10", lines)
        note = "popularity from 0 (right) to 1 (left)"
        figures.append(("dial", draw("Accuracy against coverage", [panel], 1, note, (6.0, 3.4))))
    title = "MFDCF against popularity on every data set"
    return Section("anywhere", title, "\n\n".join(parts), figures)


def _summarise(results: Results) -> str:
    """Tabulate Accuracy@10 of the real-valued query, and its ratio to popularity."""
    rows = []
    for name, of_data in by_data(results.where(score="real")):
        ours, popular = (
            [part.mean("accuracy@10") for _, part in of_data.where(label=label).by("shots")]
            for label in ("mfdcf", "popularity")
        )
        cells = [f"{a:.3f} ({a / b:.2f})".lstrip("0") for a, b in zip(ours, popular, strict=True)]
        given = ORDERS[of_data.rows[-1]["given_by"]]
        rows.append([name, given, f"{popular[0]:.3f}".lstrip("0"), *cells])
    counts = [f"{n} given" for n in results.values("shots")]
    head = ["data", "events given", f"popularity, {counts[0]}", *counts]
    return (
        "Accuracy@10 of the real-valued query with 64 bits; in brackets the ratio to popularity for"
        f" the same people after as many events:\n\n{format_table(head, rows)}"
    )


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
    """Compute the pooled accuracies and p of their difference over users."""
    (hits, pairs_of), (control, _) = (arrange(side).sum(axis=2) for side in (ours, popular))
    own_hits, control_hits, pairs = hits.sum(), control.sum(), pairs_of.sum()
    difference = (own_hits - control_hits) / pairs
    residuals = hits - control - difference * pairs_of
    error = math.sqrt(residuals @ residuals) / pairs
    p = 0.5 * math.erfc(-difference / (error * math.sqrt(2))) if error else 1.0
    return Cell(data, shots, score, k, own_hits / pairs, control_hits / pairs, p)


def find_below(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells significantly below popularity, by Holm's rule over all of them."""
    ordered = sorted(cells, key=lambda cell: cell.p)
    for place, cell in enumerate(ordered):
        if cell.p > LEVEL / (len(cells) - place):
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
