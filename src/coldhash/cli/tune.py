"""The command about settings: tune."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldhash.cli.app import AsJson, app, print_json, printable
from coldhash.errors import SettingError

if TYPE_CHECKING:
    from coldhash.lab import Study


@app.command()
def tune(
    out: Annotated[Path, typer.Option("--out", help="The folder for the study and its report.")],
    file: Annotated[Path | None, typer.Argument(metavar="STUDY.toml", help="A study.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Instead of a file: the study shipped for it.")
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", help="Instead of the study's data sets.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="The folder that holds the data sets.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Instead of the study's number.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Begin no trial after so long.")] = None,
    as_json: AsJson = False,
) -> None:
    """Look for good settings of a model by Optuna; stopped and started again, it goes on."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from coldhash.data.sources import read
    from coldhash.lab import run_study

    study = _study(file, model)
    if dataset:
        study = study.replace(datasets=dataset)
    if trials is not None:
        study = study.replace(trials=trials)
    opened = {name: read(name, data) for name in study.datasets}
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        bar = bars.add_task(f"tuning {study.model}", total=study.trials)

        def tell(done: float, total: int, best: float | None) -> None:
            value = "" if best is None else f", best {best:.4f}"
            told = f"tuning {study.model}: trial {int(done)} of {total}{value}"
            bars.update(bar, completed=done, description=told)

        tuned = run_study(study, opened, out, minutes=minutes, progress=tell)
    if as_json:
        print_json(tuned.to_dict())
    else:
        print("\n".join(map(printable, tuned.to_markdown().split("\n"))))


def _study(file: Path | None, model: str | None) -> Study:
    from coldhash.lab import Study
    from coldhash.lab.experiment import experiments_folder

    if (file is None) == (model is None):
        raise SettingError("say which study", hint="either STUDY.toml or --model NAME")
    if file is not None:
        return Study.from_toml(file)
    shipped = experiments_folder() / "tune" / f"{model}.toml"
    if not shipped.is_file():
        names = sorted(each.stem for each in shipped.parent.glob("*.toml"))
        raise SettingError(f"no study of {model!r} is shipped", hint=f"one of {', '.join(names)}")
    return Study.from_toml(shipped)
