"""Questions: accuracy after some of them, beside other ways to choose what to ask."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coldhash.data.sources import read
from coldhash.data.splits import split_cold_users
from coldhash.lab.asking import N_QUESTIONS, PROTOCOLS, Panel, strategies
from coldhash.lab.figures import Line, draw
from coldhash.lab.figures import Panel as Plot
from coldhash.lab.reproduce.report import DATASETS, Section, format_accuracy
from coldhash.lab.runner import RunProgress
from coldhash.mfdcf.model import MFDCF
from coldhash.render import format_table


def asking_section(data: Path, quick: bool, progress: RunProgress | None) -> Section:
    """Ask the cold users of every data set in every way."""
    rows, plots = [], []
    names = ["ml-100k"] if quick else list(PROTOCOLS)
    for done, name in enumerate(names):
        train, cold = split_cold_users(read(name, data), seed=0, described=True)
        panel = Panel.of(MFDCF().fit(train), train, cold, PROTOCOLS[name])
        nobody = panel.judge(np.zeros(panel.known.shape, dtype=bool)).accuracy
        rows.append([DATASETS[name], "nobody asked", *[format_accuracy(nobody)] * 4, ""])
        lines = []
        for label, pick in strategies(panel):
            found = panel.ask(pick)
            values = [each.accuracy for each in found.values()]
            shown = map(format_accuracy, values)
            rows.append([DATASETS[name], label, *shown, f"{found[N_QUESTIONS[-1]].share:.2f}"])
            lines.append(Line(label, [0, *N_QUESTIONS], [nobody, *values]))
        plots.append(Plot(DATASETS[name], "questions asked", "Accuracy@10", lines))
        if progress is not None:
            progress(done + 1, len(names), name)
    head = ["data", "questions by", *(f"after {n}" for n in N_QUESTIONS), "known"]
    figure = draw("Accuracy after questions", plots, len(plots), "64 bits, one split")
    text = (
        "Accuracy@10 after questions about items; items that were asked about are neither"
        " favourites nor candidates. `known`: the share of questions about items that the user has"
        f" rated.\n\n{format_table(head, rows)}"
    )
    return Section("ask", "What to ask a stranger", text, [("ask", figure)])
