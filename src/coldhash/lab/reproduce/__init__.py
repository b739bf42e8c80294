"""Reproduce the paper: run its experiments, draw its figures and judge its claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from coldhash.errors import check_choice
from coldhash.lab.experiment import Experiment, experiments_folder
from coldhash.lab.reproduce import extensions, paper
from coldhash.lab.reproduce.report import Section, write_report
from coldhash.lab.runner import Results, RunProgress, ignore_progress, run_experiment

__all__ = ["SECTIONS", "describe_results", "make_section", "write_report"]

EXPERIMENTS: dict[str, Callable[[Results], Section]] = {
    "figure-1": paper.accuracy_section,
    "figure-2": paper.accuracy_section,
    "figure-3": paper.sensitivity_section,
    "figure-4": paper.convergence_section,
    "table-2": paper.training_time_section,
    "ablation": extensions.ablation_section,
    "shots": extensions.shots_section,
    "bytes": extensions.bytes_section,
    "protocols": extensions.protocols_section,
    "anywhere": extensions.anywhere_section,
}
OTHERS: dict[str, Callable[[Path, bool, RunProgress], Section]] = {
    "table-1": paper.statistics_section,
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
    progress: RunProgress = ignore_progress,
) -> Section:
    """Run what is missing for one figure or table, and judge its claims."""
    check_choice("name", name, ("all", *SECTIONS))
    if name in OTHERS:
        return replace(OTHERS[name](data, quick, progress), name=name)
    experiment = Experiment.from_toml(experiments_folder() / f"{name}.toml")
    if quick:
        experiment = experiment.quick_version()
    return describe_results(experiment, run_experiment(experiment, data, out, jobs, progress))


def describe_results(experiment: Experiment, results: Results) -> Section:
    """Make the section on an experiment: its text, then tables and figures."""
    made = EXPERIMENTS[experiment.name](results)
    text = "\n".join(filter(None, (experiment.text, made.text)))
    return replace(made, name=experiment.name, title=experiment.about, text=text)
