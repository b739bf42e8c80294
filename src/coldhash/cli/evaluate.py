"""Commands about judging models: evaluate, experiment, reproduce."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldhash.cli.app import (
    AsJson,
    ColumnNames,
    DataPath,
    DuplicateRule,
    Encoding,
    ItemsFile,
    Name,
    PlanFile,
    RatingsFile,
    UsersFile,
    app,
    open_data,
    printable,
)
from coldhash.errors import SettingError

if TYPE_CHECKING:
    from coldhash.evaluate.compare import ComparisonTable

DataFolder = Annotated[
    Path | None, typer.Option("--data", help="The folder that holds the data sets.")
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Processes; all cores if not given.")
]
Quick = Annotated[bool, typer.Option("--quick", help="One split, small grids.")]


@app.command()
def evaluate(
    dataset: Name = None,
    data: DataPath = None,
    ratings: RatingsFile = None,
    users: UsersFile = None,
    items: ItemsFile = None,
    column: ColumnNames = None,
    duplicates: DuplicateRule = "error",
    plan: PlanFile = None,
    encoding: Encoding = "utf-8",
    models: Annotated[
        str, typer.Option("--models", help="Methods, with commas; the first is compared with all.")
    ] = "mfdcf,popularity,ridge",
    bits: Annotated[
        int | None, typer.Option("--bits", help="The length of codes, where a method has them.")
    ] = None,
    splits: Annotated[int, typer.Option(min=1, help="Random splits of the users.")] = 5,
    shots: Annotated[
        str, typer.Option(help="Ratings that a stranger gives first, with commas.")
    ] = "0",
    protocol: Annotated[
        str, typer.Option(help="sampled-1000, full, ddl, du or mdcf.")
    ] = "sampled-1000",
    score: Annotated[str, typer.Option(help="real, or hamming: codes on both sides.")] = "real",
    k: Annotated[int, typer.Option("-k", min=1, help="For intervals and comparisons.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of splits, candidates and fits.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Judge methods side by side on strangers: the same splits, users and candidates for all."""
    from coldhash.evaluate.compare import compare_models
    from coldhash.registry import MODELS

    chosen = {}
    for name in models.split(","):
        if name not in MODELS:
            raise SettingError(f"no method is called {name!r}", hint=f"one of {', '.join(MODELS)}")
        has_bits = bits is not None and "n_bits" in _fields(MODELS[name])
        chosen[name] = MODELS[name](**({"n_bits": bits} if has_bits else {}))
    given = [_whole(text) for text in shots.split(",")]
    opened = open_data(dataset, data, ratings, users, items, column, duplicates, plan, encoding)
    with _bar("evaluating") as progress:
        found = compare_models(
            opened,
            chosen,
            splits=splits,
            shots=given,
            protocol=protocol,
            score=score,  # type: ignore[arg-type]  # checked where it is used
            k=k,
            seed=seed,
            progress=progress,
        )
    print(json.dumps(_document(found)) if as_json else _format_table(found))


@app.command()
def experiment(
    file: Annotated[Path, typer.Argument(metavar="EXPERIMENT.toml", help="What to run.")],
    out: Annotated[Path, typer.Option("--out", help="The folder for results.")],
    data: DataFolder = None,
    jobs: Jobs = None,
    quick: Quick = False,
) -> None:
    """Run an experiment; stopped and started again, it goes on where it was."""
    from coldhash.lab import Experiment, run_experiment

    plan = Experiment.from_toml(file)
    if quick:
        plan = plan.quick_version()
    with _bar(plan.name) as progress:
        log = run_experiment(plan, data, out, jobs or os.cpu_count() or 1, progress)
    print(log.folder / "results.parquet")


@app.command()
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="table-1, table-2, figure-1 to figure-4; beyond the paper: ablation, shots, bytes,"
            " protocols; or all."
        ),
    ],
    data: Annotated[Path, typer.Option("--data", help="The folder that holds the data sets.")],
    out: Annotated[Path, typer.Option("--out", help="The folder for runs and the report.")],
    jobs: Jobs = None,
    quick: Quick = False,
) -> None:
    """Reproduce the paper: run, draw, judge its claims; stopped and started again, it goes on."""
    from coldhash.lab.reproduce import SECTIONS, make_section, write_report

    jobs = jobs or os.cpu_count() or 1
    sections = []
    for each in SECTIONS if name == "all" else (name,):
        with _bar(each) as progress:
            sections.append(make_section(each, data, out, quick, jobs, progress))
    command = f"coldhash reproduce {name} --data DIR --out DIR" + (" --quick" if quick else "")
    print(write_report(sections, out, command))


@contextmanager
def _bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeLeft())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        bar = bars.add_task(printable(title), total=None)

        def tell(done: int, total: int, last: str) -> None:
            told = printable(f"{title}: {last}" if last else title)
            bars.update(bar, completed=done, total=total, description=told)

        yield tell


def _fields(form: Any) -> set[str]:
    import dataclasses

    return {field.name for field in dataclasses.fields(form)}


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SettingError(f"--shots: {text!r}", hint="whole numbers, e.g. 0,5,20") from None


def _document(found: ComparisonTable) -> dict[str, Any]:
    return {
        "k": found.k,
        "models": [
            {
                "model": each.model,
                "shots": each.shots,
                "metrics": each.metrics,
                "accuracy": each.accuracy.mean,  # as the protocol counts it
                "low": each.accuracy.low,
                "high": each.accuracy.high,
                "first_is": each.verdict,
            }
            for each in found.rows
        ],
    }


def _format_table(found: ComparisonTable) -> str:
    """Format a table, with a line that explains its columns."""
    k, first = found.k, found.rows[0].model
    lines = [
        f"{'method':12} {'given':>5} {'accuracy':>9} {'between':>17} {'ndcg':>7} {'coverage':>9}"
        f"  {first} is"
    ]
    lines += [
        f"{each.model:12} {each.shots:>5} {each.accuracy.mean:9.4f}"
        f" {each.accuracy.low:8.4f} {each.accuracy.high:8.4f} {each.metrics[f'ndcg@{k}']:7.4f}"
        f" {each.metrics['coverage@10']:9.3f}  {each.verdict or ''}"
        for each in found.rows
    ]
    lines.append(f"accuracy and ndcg at {k}; between: 95%, drawn over users")
    return "\n".join(lines)
