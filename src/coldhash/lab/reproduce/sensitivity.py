"""Figure 3: what alpha, beta and gamma do, over the paper's grid."""

from __future__ import annotations

from collections.abc import Iterator

from coldhash.lab.figures import Line, Panel, draw
from coldhash.lab.reproduce.sections import Claim, Section, Verdict, figure, table
from coldhash.lab.results import Results

WEIGHTS = {"alpha": "fit_weight", "beta": "code_weight", "gamma": "rank_weight"}
BETTER = {"alpha": (10.0, 1e3, 1e6), "beta": (10.0, 1e3), "gamma": (1.0, 10.0)}  # the paper says
K = 10


def sensitivity_section(results: Results) -> Section:
    """Vary one weight at a time, the others as they are."""
    panels, rows = [], []
    for letter, setting in WEIGHTS.items():
        lines = []
        for score, label in (("real", "MFDCF"), ("hamming", "MFDCF, Hamming")):
            part = results.where(label=letter, score=score)
            points = [(value, each.interval(K)) for value, each in part.by(setting)]
            lines.append(
                Line(
                    label,
                    [value for value, _ in points],
                    [sure.mean for _, sure in points],
                    [sure.low for _, sure in points],
                    [sure.high for _, sure in points],
                )
            )
            rows += [
                [
                    letter,
                    label,
                    f"{value:g}",
                    figure(sure.mean),
                    f"{figure(sure.low)} to {figure(sure.high)}",
                ]
                for value, sure in points
            ]
        panels.append(Panel(f"{letter} ({setting})", letter, f"Accuracy@{K}", lines, x_scale="log"))
    note = "MovieLens-1M, 128 bits, fair ties; bands: 95% over users"
    text = table(["weight", "scored", "value", "Accuracy@10", "between"], rows)
    return Section(
        "figure-3",
        "Figure 3: sensitivity to alpha, beta and gamma",
        text,
        [("figure-3", draw("Sensitivity of MFDCF", panels, 3, note))],
        list(_claims(results)),
    )


def _claims(results: Results) -> Iterator[Claim]:
    for letter, setting in WEIGHTS.items():
        part = results.where(label=letter, score="hamming")
        inside = {v: each for v, each in part.by(setting) if v in BETTER[letter]}
        outside = {v: each for v, each in part.by(setting) if v not in BETTER[letter]}
        said = ", ".join(f"{value:g}" for value in BETTER[letter])
        text = f"{letter} is better at {said} than elsewhere"
        if not inside or not outside:
            yield Claim(text, "cannot be told", "the grid of this run is too small")
            continue
        worst_in = min(inside, key=lambda value: inside[value].mean(f"accuracy@{K}"))
        best_out = max(outside, key=lambda value: outside[value].mean(f"accuracy@{K}"))
        found = inside[worst_in].against(outside[best_out], K)
        verdicts: dict[str, Verdict] = {
            "ahead": "holds",
            "level": "cannot be told",
            "behind": "does not hold",
        }
        yield Claim(
            text,
            verdicts[found.verdict],
            f"Hamming, fair ties: the worst of them ({worst_in:g}) against the best elsewhere"
            f" ({best_out:g}): {found.difference:+.4f} ({found.low:+.4f} to {found.high:+.4f})",
        )
