"""Commands about data, and about methods on them: from describe to reproduce."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import coldhash as ch
from coldhash.cli import inputs
from coldhash.cli.inputs import AsJson, DataOptions, File, TableOptions, Text
from coldhash.cli.output import format_facts, print_result, progress_bar
from coldhash.errors import SettingError, check_choice

Jobs = Annotated[int, Option("--jobs", "-j", min=1, help="Processes.", show_default="all cores")]
_CORES = os.cpu_count() or 1
Quick = Annotated[bool, Option("--quick", help="One split, small grids.")]


@inputs.command
def describe(source: DataOptions, as_json: AsJson = False) -> None:
    """Show counts, sparsity, columns, feature groups and what is missing."""
    from coldhash.features.fitting import describe as describe_data

    facts = describe_data(source.read())
    print_result(facts, format_facts(facts), as_json)


@inputs.command
def fetch(
    name: Annotated[str, Argument(help="ml-1m, ml-100k or book-crossing.")],
    to: Annotated[Path, Option(help="The folder to put it in.")],
    archive: Annotated[File, Option("--from", help="Import a local archive instead.")] = None,
) -> None:
    """Download a known data set, with checksum and resume, or import a local archive."""
    from coldhash.data.fetch import ARCHIVES, import_archive
    from coldhash.data.fetch import fetch as download

    check_choice("name", name, ARCHIVES)
    known = ARCHIVES[name]
    print(known.about, file=sys.stderr)
    if archive is not None:
        print(import_archive(known, archive, to))
        return
    with progress_bar(name, in_bytes=True) as update:
        path = download(known, to, report=update)
    print(path)


@inputs.command
def prepare(
    ratings: Annotated[Path, Option(help="Ratings: CSV, TSV, JSON lines, Parquet.")],
    out: Annotated[Path, Option(help="The folder to make.")],
    source: TableOptions,
    part_users: Annotated[int | None, Option(help="Users in a partition.")] = None,
    memory: Annotated[str, Option(help="The memory to use.")] = "2GB",
) -> None:
    """Sort ratings of any size into partitions."""
    from coldhash.scale import prepare as prepare_partitions

    options = {**source.settings(), "part_users": part_users, "memory": memory}
    with progress_bar("preparing") as update:
        options["progress"] = lambda step, *counts: update(*counts, step)
        prepared = prepare_partitions(ratings, out, source.users, source.items, **options)
    print(f"{out}: {prepared.n_ratings:,} ratings in {len(prepared.ends) - 1:,} partitions")


@dataclass(frozen=True)
class CompareOptions:
    """The options of `compare_models`, by the same names."""

    splits: Annotated[int, Option(min=1, help="Random splits of the users.")] = 5
    order: Annotated[Text, Option(help="Of ratings given: time (where known) or random.")] = None
    protocol: Annotated[str, Option(help="sampled-1000, full, ddl, du or mdcf.")] = "sampled-1000"
    score: Annotated[str, Option(help="real, or hamming: codes on both sides.")] = "real"
    k: Annotated[int, Option("-k", min=1, help="For intervals and comparisons.")] = 10
    seed: Annotated[int, Option(min=0, help="The seed of splits and fits.")] = 0


@inputs.command
def evaluate(
    source: DataOptions,
    options: CompareOptions,
    models: Annotated[
        str, Option(help="Methods, with commas; the first is compared with all.")
    ] = "mfdcf,popularity,ridge",
    bits: Annotated[int | None, Option(help="Bits of a code, where a method has codes.")] = None,
    shots: Annotated[str, Option(help="Ratings that a stranger gives first, e.g. 0,5.")] = "0",
    out: Annotated[File, Option(help="Write all metrics as .csv or .md.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare methods on strangers: the same splits, users and candidates for all."""
    from coldhash.evaluate.compare import compare_models

    settings = {}
    for name in models.split(","):
        method = inputs.find_method(name)
        has_bits = bits is not None and hasattr(method, "n_bits")
        settings[name] = method(n_bits=bits) if has_bits else method()
    given = _parse_shots(shots)
    if out is not None:
        inputs.check_out(out, ".csv", ".md")
    data = source.read()
    with progress_bar("evaluating") as update:
        found = compare_models(data, settings, shots=given, progress=update, **vars(options))
    if out is not None:
        found.save(out)
    print_result(asdict(found), [found], as_json)


@inputs.command
def experiment(
    file: Annotated[Path, Argument(metavar="EXPERIMENT.toml", help="What to run.")],
    out: Annotated[Path, Option(help="The folder for results.")],
    source: DataOptions,
    jobs: Jobs = _CORES,
    quick: Quick = False,
) -> None:
    """Run an experiment, on its data sets or on your tables; run again, it resumes."""
    from coldhash.lab import Experiment, run_experiment

    plan = Experiment.from_toml(file)
    if quick:
        plan = plan.quick_version()
    data = source.read() if source.is_given else source.data
    with progress_bar(plan.name) as update:
        run_experiment(plan, data, out, jobs, update)
    print(out / plan.name / "results.parquet")


@inputs.command
def tune(
    file: Annotated[Path, Argument(metavar="STUDY", help="A TOML file, or a method's name.")],
    out: Annotated[Path, Option(help="The folder for the study and its report.")],
    source: DataOptions,
    trials: Annotated[int | None, Option(help="Instead of the study's number.")] = None,
    as_json: AsJson = False,
) -> None:
    """Search for good settings of a method on its study's data or yours; run again, it resumes."""
    from coldhash.lab import Study, run_study
    from coldhash.lab.experiment import experiments_folder

    shipped = experiments_folder() / "tune" / f"{file}.toml"
    study = Study.from_toml(shipped if shipped.is_file() else file)
    own = source.read() if source.is_given else None
    if own is not None:
        study = study.replace(datasets=[own.name])
    if trials is not None:
        study = study.replace(trials=trials)
    datasets = {name: own or ch.read(name, source.data) for name in study.datasets}
    with progress_bar(f"tuning {study.model}") as update:
        tuned = run_study(study, datasets, out, update)
    found = tuned.to_dict()
    shown = {name: found[name] for name in ("best", "default", "improvement", "noise")}
    print_result(found, format_facts(shown), as_json)


@inputs.command
def reproduce(
    name: Annotated[str, Argument(help="A section of the report, such as figure-1, or all.")],
    data: Annotated[Path, Option(help="The folder that holds the data sets.")],
    out: Annotated[Path, Option(help="The folder for runs and the report.")],
    jobs: Jobs = _CORES,
    quick: Quick = False,
) -> None:
    """Reproduce the paper: run, draw, check its claims; run again, it resumes."""
    from coldhash.lab.reproduce import SECTIONS, make_section, write_report

    sections = []
    for each in SECTIONS if name == "all" else (name,):
        with progress_bar(each) as update:
            sections.append(make_section(each, data, out, quick, jobs, update))
    repeat = f"coldhash reproduce {name} --data DIR --out DIR" + (" --quick" if quick else "")
    print(write_report(sections, out, repeat))


def _parse_shots(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise SettingError(f"--shots {text!r}", hint="whole numbers, e.g. 0,5,20") from None
