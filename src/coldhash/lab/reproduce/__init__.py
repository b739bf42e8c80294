"""Reproduce the paper: run its experiments, draw its figures and judge its claims."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from coldhash.data.sources import read
from coldhash.errors import SettingError
from coldhash.features.describe import describe
from coldhash.lab.experiment import Experiment, experiments_folder
from coldhash.lab.reproduce import extensions, paper
from coldhash.lab.reproduce.report import DATASETS, Claim, Section, write_report
from coldhash.lab.results import Results
from coldhash.lab.runner import RunProgress, run_experiment
from coldhash.render import format_table

__all__ = ["SECTIONS", "make_section", "write_report"]

STATISTICS = {  # the paper's Table 1: users, items, ratings, sparsity in percent
    "ml-1m": (6040, 3952, 1_000_209, 95.81),
    "book-crossing": (2151, 6830, 180_595, 98.77),
}
EXPERIMENTS: dict[str, Callable[[Results], Section]] = {
    "figure-1": partial(paper.accuracy_section, "figure-1"),
    "figure-2": partial(paper.accuracy_section, "figure-2"),
    "figure-3": paper.sensitivity_section,
    "figure-4": paper.convergence_section,
    "table-2": paper.training_time_section,
    "ablation": extensions.ablation_section,
    "shots": extensions.shots_section,
    "bytes": extensions.bytes_section,
    "protocols": extensions.protocols_section,
    "anywhere": extensions.anywhere_section,
}


def statistics_section(data: Path, quick: bool, progress: RunProgress | None) -> Section:
    """Make Table 1: the sizes of the data sets."""
    rows, same = [], True
    for name, expected in STATISTICS.items():
        facts = describe(read(name, data))
        *counts, sparsity = (facts[each] for each in ("users", "items", "ratings", "sparsity"))
        same &= (*counts, sparsity) == expected
        rows.append([DATASETS[name], *(f"{count:,}" for count in counts), f"{sparsity:.2f}%"])
    text = format_table(["data", "users", "items", "ratings", "sparsity"], rows)
    claim = Claim(
        "the statistics of the data sets",
        "holds" if same else "does not hold",
        "counted from the published archives",
    )
    return Section("table-1", "Table 1: statistics of the data sets", text, (), [claim])


OTHERS: dict[str, Callable[[Path, bool, RunProgress | None], Section]] = {
    "table-1": statistics_section,
    "ask": extensions.asking_section,
    "new-items": extensions.new_items_section,
}
SECTIONS = ("table-1", *EXPERIMENTS, "ask", "new-items")


def make_section(
    name: str,
    data: Path,
    out: Path,
    quick: bool = False,
    jobs: int = 1,
    progress: RunProgress | None = None,
) -> Section:
    """Run what is missing for one figure or table, and judge its claims."""
    if name not in SECTIONS:
        raise SettingError(f"no section is called {name!r}", hint=f"all, {', '.join(SECTIONS)}")
    if name in OTHERS:
        return OTHERS[name](data, quick, progress)
    experiment = Experiment.from_toml(experiments_folder() / f"{name}.toml")
    if quick:
        experiment = experiment.quick_version()
    return EXPERIMENTS[name](run_experiment(experiment, data, out, jobs, progress))
