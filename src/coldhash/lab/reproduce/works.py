"""What can be reproduced, by name, and how it is done: run, draw, judge, write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from coldhash.data.sources import read
from coldhash.errors import SettingError
from coldhash.features.describe import describe
from coldhash.lab.experiment import Experiment
from coldhash.lab.reproduce.accuracy import accuracy_section
from coldhash.lab.reproduce.efficiency import convergence_section, training_time_section
from coldhash.lab.reproduce.ours import (
    ablation_section,
    bytes_section,
    protocols_section,
    shots_section,
)
from coldhash.lab.reproduce.sections import DATASETS, Claim, Section, Verdict, table
from coldhash.lab.reproduce.sensitivity import sensitivity_section
from coldhash.lab.results import Results
from coldhash.lab.running import Progress, run_experiment
from coldhash.lab.shipped import experiments

STATISTICS = {  # the paper's Table 1: users, items, ratings, sparsity in percent
    "ml-1m": (6040, 3952, 1_000_209, 95.81),
    "book-crossing": (2151, 6830, 180_595, 98.77),
}
SECTIONS: dict[str, Callable[[Results], Section]] = {
    "figure-1": partial(accuracy_section, "figure-1"),
    "figure-2": partial(accuracy_section, "figure-2"),
    "figure-3": sensitivity_section,
    "figure-4": convergence_section,
    "table-2": training_time_section,
    "ablation": ablation_section,
    "shots": shots_section,
    "bytes": bytes_section,
    "protocols": protocols_section,
}
WORKS = ("table-1", *SECTIONS)


@dataclass(frozen=True)
class Workshop:
    """Where data comes from, where results go, and how much is done."""

    data: Path
    out: Path
    quick: bool = False
    jobs: int = 1

    def make(self, name: str, progress: Progress | None = None) -> Section:
        """Run what is not yet done for one figure or table, and judge it."""
        if name not in WORKS:
            raise SettingError(
                f"nothing is called {name!r}", hint=f"one of all, {', '.join(WORKS)}"
            )
        if name == "table-1":
            return statistics_section(self.data)
        experiment = Experiment.from_toml(experiments() / f"{name}.toml")
        if self.quick:
            experiment = experiment.quickened()
        journal = run_experiment(experiment, self.data, self.out, self.jobs, progress)
        return SECTIONS[name](Results.of(journal, [run.key for run in experiment.runs()]))


def statistics_section(data: Path) -> Section:
    """Table 1: count the data sets."""
    rows, same = [], True
    for name, expected in STATISTICS.items():
        facts = describe(read(name, data))
        found = (facts["users"], facts["items"], facts["ratings"], facts["sparsity"])
        same &= found == expected
        users, items, ratings, sparsity = found
        rows.append(
            [DATASETS[name], f"{users:,}", f"{items:,}", f"{ratings:,}", f"{sparsity:.2f}%"]
        )
    verdict: Verdict = "holds" if same else "does not hold"
    text = table(["data", "users", "items", "ratings", "sparsity"], rows)
    claim = Claim("the statistics of the data sets", verdict, "counted from the published archives")
    return Section("table-1", "Table 1: statistics of the data sets", text, (), [claim])
