"""Commands about models: fit, recommend, similar, inspect, export."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from itertools import chain
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
    cell,
    open_data,
    print_json,
    printable,
)
from coldhash.cli.batch import recommend_on
from coldhash.cli.scale import DaskAddress, MemoryLimit, PartsFolder, open_parts, place_of_fit
from coldhash.errors import SettingError
from coldhash.files import replace_file

if TYPE_CHECKING:
    import pyarrow as pa

    from coldhash.recommender.recommender import Recommender
    from coldhash.recommender.results import Recommendations

ModelFile = Annotated[Path, typer.Argument(help="A model file made by `coldhash fit`.")]
HowMany = Annotated[int, typer.Option("-k", help="How many items.")]


@app.command()
def fit(
    out: Annotated[Path, typer.Option("--out", help="Where to write the model.")],
    dataset: Name = None,
    data: DataPath = None,
    ratings: RatingsFile = None,
    users: UsersFile = None,
    items: ItemsFile = None,
    column: ColumnNames = None,
    duplicates: DuplicateRule = "error",
    plan: PlanFile = None,
    encoding: Encoding = "utf-8",
    model: Annotated[str, typer.Option("--model", help="The method: mfdcf, ridge, ...")] = "mfdcf",
    bits: Annotated[int | None, typer.Option("--bits", help="Bits of a code.")] = None,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting of the method.", metavar="NAME=VALUE"),
    ] = None,
    parts: PartsFolder = None,
    memory: MemoryLimit = None,
    dask: DaskAddress = None,
    as_json: AsJson = False,
) -> None:
    """Learn a model and write it to one file."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from coldhash.recommender.settings import settings_from
    from coldhash.registry import MODELS

    if model not in MODELS:
        raise SettingError(f"no method is called {model!r}", hint=f"one of {', '.join(MODELS)}")
    chosen = settings_from(MODELS[model], _settings(bits, setting or []))
    own = (dataset, data, ratings, users, items, column, duplicates, plan, encoding)
    opened = open_data(*own) if parts is None else open_parts(parts, *own)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with (
        place_of_fit(model, out, parts, memory, dask) as place,
        Progress(*columns, console=Console(stderr=True)) as bars,
    ):
        bar = bars.add_task(f"fitting {model}")

        def tell(n: int, objective: float) -> None:
            bars.update(
                bar, description=f"fitting {model}: round {n + 1}, objective {objective:.6g}"
            )

        fitted = chosen.fit(opened, seed=seed, callback=tell, **place)
        fitted.save(out)
    if fitted.report.get("warning"):
        print(f"warning: {printable(fitted.report['warning'])}", file=sys.stderr)
    print(json.dumps(_facts(fitted, out)) if as_json else out)


@app.command()
def recommend(
    file: ModelFile,
    user: Annotated[
        list[str] | None,
        typer.Option("--user", help='Somebody, as JSON: {"age": 25, "history": {"1193": 5}}.'),
    ] = None,
    users: Annotated[Path | None, typer.Option("--users", help="A table of people.")] = None,
    user_id: Annotated[
        list[str] | None, typer.Option("--user-id", help="Somebody from the training data.")
    ] = None,
    everybody: Annotated[
        bool, typer.Option("--all", help="Everybody from the training data.")
    ] = False,
    k: HowMany = 10,
    exclude: Annotated[list[str] | None, typer.Option(help="An item not to recommend.")] = None,
    candidates: Annotated[
        Path | None, typer.Option(help="A text file of the only items to recommend, one a line.")
    ] = None,
    score: Annotated[str, typer.Option(help="real, or hamming: codes on both sides.")] = "real",
    out: Annotated[Path | None, typer.Option("--out", help="Write .csv or .parquet.")] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            "--dask",
            help="With --all: work on a Dask cluster, `local` or its address; "
            "--out is then a folder, and a second run goes on where the first stopped.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recommend to strangers or to users of the training data."""
    from coldhash.recommender.loading import load

    chosen = [name for name, given in (("--user", user), ("--users", users),
              ("--user-id", user_id), ("--all", everybody)) if given]  # fmt: skip
    if len(chosen) != 1:
        raise SettingError("say for whom", hint="one of --user, --users, --user-id, --all")
    options: dict[str, Any] = {"score": score, "exclude": exclude}
    if candidates is not None:
        options["candidates"] = _lines(candidates)
    if dask is not None:
        if not everybody or out is None:
            raise SettingError(f"--dask {dask}", hint="--all --dask local --out FOLDER")
        recommend_on(dask, file, out, k, options)
        return
    model = load(file)
    if everybody:
        tables = _with_progress(model, k, options)
    elif user_id:
        tables = [model.recommend(user_ids=user_id, k=k, **options)]
    else:
        people = [_person(text) for text in user or []] if users is None else _table(users)
        tables = [model.recommend(people, k=k, **options)]
    _give(model, tables, out, as_json)


@app.command()
def similar(
    file: ModelFile,
    item: Annotated[str | None, typer.Option("--item", help="An item id.")] = None,
    user_id: Annotated[str | None, typer.Option("--user-id", help="A training user.")] = None,
    k: HowMany = 10,
    as_json: AsJson = False,
) -> None:
    """Show the items, or the users, most like one."""
    from coldhash.recommender.loading import load

    if (item is None) == (user_id is None):
        raise SettingError("say like what", hint="--item ID or --user-id ID")
    model = load(file)
    if item is not None:
        _give(model, [model.similar_items(item, k)], None, as_json)
    else:
        found = model.similar_users(user_id=user_id, k=k)
        rows = [{"user_id": row["item_id"], "score": row["score"]} for row in found]
        print(json.dumps(rows) if as_json else "\n".join(cell(row["user_id"]) for row in rows))


@app.command()
def inspect(file: ModelFile, as_json: AsJson = False) -> None:
    """Show what a model file holds; its checksum is verified."""
    from coldhash.recommender.loading import load

    facts = _facts(load(file), file)
    if as_json:
        print(json.dumps(facts))
        return
    for name, value in facts.items():
        text = json.dumps(value, indent=2) if isinstance(value, dict) else printable(str(value))
        print(f"{name}: {text}")


@app.command()
def export(
    file: ModelFile,
    to: Annotated[str, typer.Option("--to", help="parquet, numpy, faiss, duckdb, lancedb or "
                                    "postgres.")],
    out: Annotated[Path, typer.Option("--out", help="The file or folder to write.")],
    what: Annotated[str, typer.Option(help="items or users")] = "items",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:  # fmt: skip
    """Write codes for another engine to search."""
    from coldhash.recommender.export import export as export_codes
    from coldhash.recommender.loading import load

    checked: Any = what  # the exporter says what it takes
    print(export_codes(load(file), to, out, what=checked, overwrite=overwrite))


def _settings(bits: int | None, pairs: Iterable[str]) -> dict[str, Any]:
    """Read settings: values are JSON, or else text."""
    settings: dict[str, Any] = {} if bits is None else {"n_bits": bits}
    for pair in pairs:
        name, mark, value = pair.partition("=")
        if not mark:
            raise SettingError(f"--set {pair!r}", hint="NAME=VALUE")
        try:
            settings[name] = json.loads(value)
        except (ValueError, RecursionError):
            settings[name] = value
    return settings


def _person(text: str) -> dict[str, Any]:
    try:
        person = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingError(f"--user: not JSON: {error}", hint='{"age": 25}') from None
    if not isinstance(person, dict):
        raise SettingError("--user: not a JSON object", hint='{"age": 25}')
    return person


def _table(path: Path) -> pa.Table:
    from coldhash.data.tables import as_table, infer_types

    table, _ = as_table(path, "user")
    return infer_types(table, keep="user_id")


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: {error}") from None


def _with_progress(model: Recommender, k: int, options: dict[str, Any]) -> Iterable[Any]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bars:
        bar = bars.add_task("recommending", total=len(model.user_ids))
        yield from model.recommend_all(
            k, progress=lambda done, _: bars.update(bar, completed=done), **options
        )


def _give(
    model: Recommender,
    answers: Iterable[Recommendations | pa.Table],
    out: Path | None,
    as_json: bool,
) -> None:
    """Write answers to a file, or print them with titles."""
    from coldhash.recommender.results import Recommendations

    if out is not None:
        _write((x.to_arrow() if isinstance(x, Recommendations) else x for x in answers), out)
        print(out)
        return
    for answer in answers:
        rows = list(answer) if isinstance(answer, Recommendations) else answer.to_pylist()
        for row in rows:
            row["title"] = _title(model, row["item_id"])
        if as_json:
            told = isinstance(answer, Recommendations)
            more = {"fallback": answer.fallback.tolist()} if told else {}
            print_json({"items": rows, **more})
        else:
            for row in rows:
                user, item = cell(row["user_id"]), cell(row["item_id"])
                title = cell(row["title"] or row["item_id"])
                print(f"{user}\t{row['rank']}\t{item}\t{row['score']:.4g}\t{title}")


def _title(model: Recommender, item_id: str) -> str | None:
    table = model.item_table
    if table is None or "title" not in table.column_names:
        return None
    title = table.column("title")[int(model.item_ids.row_of(item_id))].as_py()
    return None if title is None else str(title)


def _write(tables: Iterable[pa.Table], out: Path) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    writers = {".csv": pyarrow.csv.CSVWriter, ".parquet": pyarrow.parquet.ParquetWriter}
    if out.suffix not in writers:
        raise SettingError(f"--out {out}", hint="a name that ends in .csv or .parquet")
    left = iter(tables)
    first = next(left, None)
    if first is not None:
        with replace_file(out) as file, writers[out.suffix](file, first.schema) as writer:
            for table in chain([first], left):
                writer.write_table(table)


def _facts(model: Recommender, file: Path) -> dict[str, Any]:
    items = len(model.items)
    return {
        "file": str(file),
        "bytes": file.stat().st_size,
        "method": model.name,
        "settings": model.settings,
        "items": items,
        "users": len(model.user_ids),
        "bytes_per_item": model.bytes_per_item,
        "groups": model.features.widths,
        "scale": list(model.scale),
        "report": model.report,
    }
