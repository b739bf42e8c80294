"""Commands about models: fit, recommend, similar, inspect, export, update."""

from __future__ import annotations

import inspect as inspection
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from coldhash.cli.app import (
    AsJson,
    DataOptions,
    ModelFile,
    app,
    find_method,
    parse_pairs,
    print_json,
    print_result,
    print_rows,
    printable,
    progress_bar,
    with_data_options,
)
from coldhash.errors import SettingError
from coldhash.files import replace_file

if TYPE_CHECKING:
    import pyarrow as pa

    from coldhash.recommender.recommender import Recommender
    from coldhash.recommender.results import Row

HowMany = Annotated[int, Option("-k", help="How many to return.")]

_SHOWN_COLUMNS = ("user_id", "rank", "item_id", "score", "title")


@app.command()
@with_data_options
def fit(
    out: Annotated[Path, Option(help="Where to write the model.")],
    source: DataOptions,
    model: Annotated[str, Option(help="The method: mfdcf, ridge, ...")] = "mfdcf",
    bits: Annotated[int | None, Option(help="Bits of a code.")] = None,
    seed: Annotated[int, Option(help="The seed of random numbers.")] = 0,
    setting: Annotated[
        list[str] | None,
        Option("--set", help="Any other setting of the method.", metavar="NAME=VALUE"),
    ] = None,
    parts: Annotated[Path | None, Option(help="A folder that `coldhash prepare` made.")] = None,
    memory: Annotated[str | None, Option(help="With --parts: the memory to use, e.g. 2GB.")] = None,
    dask: Annotated[str | None, Option(help="Use a Dask cluster: its address, or `local`.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fit a model and write it to one file."""
    from coldhash.recommender.settings import settings_from
    from coldhash.scale.prepared import Prepared

    method = find_method(model)
    if (parts or dask) and "on" not in inspection.signature(method.fit).parameters:
        raise SettingError(f"{model} fits in memory only", hint="--model mfdcf")
    if memory is not None and (parts is None or dask is not None):
        raise SettingError("--memory is for fits from disk", hint="--parts DIR, without --dask")
    if parts is not None and source != DataOptions():
        raise SettingError(
            "--parts already is the data", hint="give tables and plans to `coldhash prepare`"
        )
    settings = settings_from(method, _parse_settings(bits, setting))
    data: Any = source.read() if parts is None else Prepared.open(parts)
    with ExitStack() as stack:
        place: dict[str, Any] = {}
        if dask is not None:
            from coldhash.scale.dask import connect

            place["on"] = stack.enter_context(connect(dask))
        elif parts is not None:
            from coldhash.scale.places import Disk

            place["on"] = Disk(out.with_name(f"{out.name}.work"), memory)
        update = stack.enter_context(progress_bar(f"fitting {model}"))
        fitted = settings.fit(
            data,
            seed=seed,
            callback=lambda n, objective: update(n + 1, text=f"objective {objective:.6g}"),
            **place,
        )
        fitted.save(out)
    if fitted.report.get("warning"):
        print(f"warning: {printable(str(fitted.report['warning']))}", file=sys.stderr)
    print_result(_model_facts(fitted, out), out, as_json)


@app.command()
def recommend(
    file: ModelFile,
    user: Annotated[
        list[str] | None, Option(help='A person in JSON: {"age": 25, "history": {"1193": 5}}.')
    ] = None,
    users: Annotated[Path | None, Option(help="A table of people.")] = None,
    user_id: Annotated[list[str] | None, Option(help="A user of the training data.")] = None,
    everybody: Annotated[bool, Option("--all", help="All training users.")] = False,
    k: HowMany = 10,
    exclude: Annotated[list[str] | None, Option(help="An item not to recommend.")] = None,
    candidates: Annotated[
        Path | None, Option(help="A file of the only items to recommend, one a line.")
    ] = None,
    exclude_seen: Annotated[bool, Option(help="Leave out what a user has rated.")] = True,
    score: Annotated[str, Option(help="real, or hamming: codes on both sides.")] = "real",
    out: Annotated[Path | None, Option(help="Write .csv or .parquet.")] = None,
    dask: Annotated[
        str | None,
        Option(help="With --all: a Dask cluster, or `local`; --out is a folder; it can resume."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recommend to strangers or to users of the training data."""
    from coldhash.recommender.persistence import load

    if sum(map(bool, (user, users, user_id, everybody))) != 1:
        raise SettingError(
            "no people, or in several ways", hint="one of --user, --users, --user-id, --all"
        )
    options: dict[str, Any] = {"score": score, "exclude": exclude, "exclude_seen": exclude_seen}
    if candidates is not None:
        options["candidates"] = _read_lines(candidates)
    if dask is not None:
        if not everybody or out is None:
            raise SettingError(f"--dask {dask}", hint="--all --dask local --out FOLDER")
        _recommend_on_dask(dask, file, out, k, options)
        return
    model = load(file)
    rows: Iterable[Row]
    document: dict[str, object] = {}
    if everybody:
        tables = _recommend_all(model, k, options)
        rows = (row for table in tables for row in table.to_pylist())
    else:
        people: Any = _read_people(users) if users else None
        if user:
            people = [_parse_person(text) for text in user]
        answer = model.recommend(people, k, user_ids=user_id or None, **options)
        tables = iter([answer.to_arrow()])
        rows = answer
        document["fallback"] = answer.fallback.tolist()
    if out is not None:
        _write_tables(tables, out)
        print(out)
    elif as_json:
        print_json({"items": list(_add_titles(model, rows)), **document})
    else:
        print_rows(_add_titles(model, rows), _SHOWN_COLUMNS)


@app.command()
def similar(
    file: ModelFile,
    item: Annotated[str | None, Option(help="An item id.")] = None,
    user_id: Annotated[str | None, Option(help="A user of the training data.")] = None,
    k: HowMany = 10,
    as_json: AsJson = False,
) -> None:
    """Show the items, or the users, most like one."""
    from coldhash.recommender.persistence import load

    if (item is None) == (user_id is None):
        raise SettingError("no item or user, or both", hint="--item ID or --user-id ID")
    model = load(file)
    if item is not None:
        found = {"items": list(_add_titles(model, model.similar_items(item, k)))}
    else:
        found = {"users": list(model.similar_users(user_id=user_id, k=k))}
    if as_json:
        print_json(found)
    else:
        print_rows(chain(*found.values()), _SHOWN_COLUMNS)


@app.command()
def inspect(file: ModelFile, as_json: AsJson = False) -> None:
    """Show what a model file holds; its checksum is verified."""
    from coldhash.recommender.persistence import load

    facts = _model_facts(load(file), file)
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        text = json.dumps(value, indent=2) if isinstance(value, dict) else printable(str(value))
        print(f"{name}: {text}")


@app.command()
def export(
    file: ModelFile,
    to: Annotated[str, Option(help="parquet, numpy, faiss, duckdb, lancedb or postgres.")],
    out: Annotated[Path, Option(help="The file or folder to write.")],
    what: Annotated[str, Option(help="items or users")] = "items",
    overwrite: Annotated[bool, Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Write codes for another engine to search."""
    from coldhash.recommender.export import export as export_codes
    from coldhash.recommender.persistence import load

    checked: Any = what  # by the exporter
    print(export_codes(load(file), to, out, what=checked, overwrite=overwrite))


@app.command()
def update(
    file: ModelFile,
    out: Annotated[Path, Option(help="Where to write the new model.")],
    items: Annotated[Path | None, Option("--add-items", help="A table of new items.")] = None,
    ratings: Annotated[
        Path | None,
        Option(help="First ratings of the new items; without --add-items, all ratings of users."),
    ] = None,
    remove: Annotated[
        Path | None, Option("--remove-items", help="A file of items to remove, one id a line.")
    ] = None,
    users: Annotated[Path | None, Option(help="A table of new or changed users.")] = None,
    as_json: AsJson = False,
) -> None:
    """Add or remove items, change or add users, without fitting again."""
    from coldhash.recommender.persistence import load
    from coldhash.update import add_items, remove_items, update_users

    if not any((items, ratings, remove, users)):
        raise SettingError(
            "nothing to update", hint="--add-items, --remove-items, --users, --ratings"
        )
    model, steps = load(file), dict[str, Any]()
    if remove is not None:
        model, steps["removed"] = remove_items(model, _read_lines(remove))
    if items is not None:
        model, steps["items"] = add_items(model, items, ratings, users)
    if users is not None or (ratings is not None and items is None):
        model, steps["users"] = update_users(model, users, ratings if items is None else None)
    model.save(out)
    changes = {name: change.as_dict() for name, change in steps.items()}
    text = "\n".join(map(str, (*steps.values(), out)))
    print_result({"file": str(out), "changes": changes}, text, as_json)


def _parse_settings(bits: int | None, texts: list[str] | None) -> dict[str, object]:
    """Read settings: values are JSON, or else text."""
    settings: dict[str, object] = {} if bits is None else {"n_bits": bits}
    for name, value in parse_pairs(texts, "--set", hint="NAME=VALUE"):
        try:
            settings[name] = json.loads(value)
        except (ValueError, RecursionError):
            settings[name] = value
    return settings


def _parse_person(text: str) -> dict[str, object]:
    try:
        person = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingError(f"--user: not JSON: {error}", hint='{"age": 25}') from None
    if not isinstance(person, dict):
        raise SettingError("--user: not a JSON object", hint='{"age": 25}')
    return person


def _read_people(path: Path) -> pa.Table:
    from coldhash.data.tables import as_table, infer_types

    return infer_types(as_table(path, "user").table, keep="user_id")


def _read_lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: {error}") from None


def _recommend_all(model: Recommender, k: int, options: dict[str, Any]) -> Iterator[pa.Table]:
    with progress_bar("recommending") as update:
        yield from model.recommend_all(k, progress=update, **options)


def _recommend_on_dask(
    address: str, file: Path, out: Path, k: int, options: dict[str, Any]
) -> None:
    from coldhash.scale.batch import recommend_all_on
    from coldhash.scale.dask import connect

    with connect(address) as client, progress_bar("recommending") as update:
        recommend_all_on(client, file, out, k, progress=update, **options)
    print(out)


def _add_titles(model: Recommender, rows: Iterable[Row]) -> Iterator[Row]:
    table = model.item_table
    titles = table["title"] if table is not None and "title" in table.column_names else None
    for row in rows:
        title = None if titles is None else titles[model.item_ids.row_of(row["item_id"])].as_py()
        yield {**row, "title": None if title is None else str(title)}


def _write_tables(tables: Iterator[pa.Table], out: Path) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    writers = {".csv": pyarrow.csv.CSVWriter, ".parquet": pyarrow.parquet.ParquetWriter}
    if out.suffix not in writers:
        raise SettingError(f"--out {out}", hint="a name that ends in .csv or .parquet")
    first = next(tables, None)
    if first is not None:
        with replace_file(out) as file, writers[out.suffix](file, first.schema) as writer:
            for table in chain([first], tables):
                writer.write_table(table)


def _model_facts(model: Recommender, file: Path) -> dict[str, object]:
    return {
        "file": str(file),
        "bytes": file.stat().st_size,
        "method": model.name,
        "settings": model.settings,
        "items": len(model.items),
        "users": len(model.user_ids),
        "bytes_per_item": model.bytes_per_item,
        "groups": model.features.widths,
        "scale": list(model.scale),
        "report": model.report,
    }
