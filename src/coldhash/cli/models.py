"""Commands about models: fit, recommend, explain, similar, inspect, export, update."""

from __future__ import annotations

import inspect as inspection
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

import coldhash as ch
from coldhash.arrays.startup import expect_one_answer
from coldhash.cli import output
from coldhash.cli.app import (
    AsJson,
    DataOptions,
    File,
    ModelFile,
    Texts,
    command,
    find_method,
    parse_pairs,
    read_file,
)
from coldhash.errors import SettingError
from coldhash.files import draft_folder, replace_file

if TYPE_CHECKING:
    import pyarrow as pa


HowMany = Annotated[int, Option("-k", help="How many to return.")]
Popularity = Annotated[float, Option(help="How much it counts what everybody likes: from 1 to 0.")]
UnknownFields = Annotated[str, Option(help="Fields that the model does not know: error or ignore.")]
_ENDINGS = (".csv", ".parquet")


@command
def fit(
    out: Annotated[Path, Option(help="Where to write the model.")],
    source: DataOptions,
    model: Annotated[str, Option(help="The method: mfdcf, ridge, ...")] = "mfdcf",
    bits: Annotated[int | None, Option(help="Bits of a code.")] = None,
    seed: Annotated[int, Option(help="The seed of random numbers.")] = 0,
    setting: Annotated[
        Texts, Option("--set", help="Any other setting of the method.", metavar="NAME=VALUE")
    ] = None,
    parts: Annotated[File, Option(help="A folder that `coldhash prepare` made.")] = None,
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
    values = {} if bits is None else {"n_bits": bits}
    for name, text in parse_pairs(setting, "--set", hint="NAME=VALUE"):
        values[name] = _parse_json(text)
    settings = settings_from(method, values)
    _check_out(out)
    data: Any = source.read() if parts is None else Prepared.open(parts)
    with ExitStack() as stack:
        place: dict[str, Any] = {}
        if dask is not None:
            from coldhash.scale.dask import connect

            place["on"] = stack.enter_context(connect(dask))
        elif parts is not None:
            from coldhash.scale.places import Disk

            place["on"] = Disk(out.with_name(f"{out.name}.work"), memory)
        update = stack.enter_context(output.progress_bar(f"fitting {model}"))
        fitted = settings.fit(
            data,
            seed=seed,
            callback=lambda n, objective: update(n + 1, text=f"objective {objective:.6g}"),
            **place,
        )
        fitted.save(out)
    if fitted.report.get("warning"):
        print(f"warning: {output.printable(str(fitted.report['warning']))}", file=sys.stderr)
    output.print_result(_model_facts(fitted, out), [out], as_json)


@dataclass(frozen=True)
class RecommendOptions:
    """The options of `Recommender.recommend`, by the same names."""

    k: HowMany = 10
    exclude: Annotated[Texts, Option(help="An item not to recommend.")] = None
    candidates: Annotated[
        File, Option(help="A file of the only items to recommend, one a line.")
    ] = None
    exclude_seen: Annotated[bool, Option(help="Leave out what a user has rated or bought.")] = True
    score: Annotated[str, Option(help="real, or hamming: codes on both sides.")] = "real"
    popularity: Popularity = 1.0

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Recommender.recommend`."""
        candidates = None if self.candidates is None else _read_lines(self.candidates)
        return {**vars(self), "candidates": candidates}


@command
def recommend(
    file: ModelFile,
    options: RecommendOptions,
    user: Annotated[
        Texts, Option(help='A person in JSON: {"age": 25, "history": {"1193": 5}}.')
    ] = None,
    users: Annotated[File, Option(help="A table of people.")] = None,
    user_id: Annotated[Texts, Option(help="A user of the training data.")] = None,
    everybody: Annotated[bool, Option("--all", help="All training users.")] = False,
    fields: Annotated[str, Option(help="Item columns to show, with commas: price,category.")] = "",
    unknown: UnknownFields = "error",
    out: Annotated[File, Option(help="Write .csv or .parquet.")] = None,
    dask: Annotated[
        str | None,
        Option(help="With --all: a Dask cluster, or `local`; --out is a folder; it can resume."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recommend to strangers or to users of the training data."""
    if sum(map(bool, (user, users, user_id, everybody))) != 1:
        raise SettingError(
            "no people, or in several ways", hint="one of --user, --users, --user-id, --all"
        )
    arguments = {**options.arguments(), "fields": fields.split(",") if fields else None}
    if dask is not None:
        from coldhash.scale.batch import recommend_all_on
        from coldhash.scale.dask import connect

        if not everybody or out is None:
            raise SettingError(f"--dask {dask}", hint="--all --dask local --out FOLDER")
        with connect(dask) as client, output.progress_bar("recommending") as update:
            recommend_all_on(client, file, out, progress=update, **arguments)
        print(out)
        return
    if out is not None:
        if out.suffix not in _ENDINGS:
            raise SettingError(f"--out {out}", hint=f"a name that ends in {' or '.join(_ENDINGS)}")
        _check_out(out)
    model = _load(file)
    document: dict[str, object] = {}
    rows: Iterator[dict[str, Any]]
    if everybody:
        tables = _recommend_all(model, arguments)
        rows = (row for table in tables for row in table.to_pylist())
    else:
        people: Any = _read_people(users, model) if users else None
        if user:
            people = [_parse_person(text) for text in user]
        checked: Any = unknown  # by `recommend`
        answer = model.recommend(people, user_ids=user_id or None, unknown=checked, **arguments)
        for note in answer.notes:
            print(f"note: {output.printable(note)}", file=sys.stderr)
        if out is not None:
            tables = iter([answer.to_arrow()])
        rows = iter(answer)
        document["fallback"] = answer.fallback.tolist()
    if out is not None:
        _write_tables(tables, out)
        print(out)
        return
    output.print_result({"items": rows, **document}, map(output.format_row, rows), as_json)


@command
def explain(
    file: ModelFile,
    user: Annotated[str, Option(help='A person in JSON: {"age": 25, "history": {"1193": 5}}.')],
    item: Annotated[str, Option(help="An item id.")],
    popularity: Popularity = 1.0,
    unknown: UnknownFields = "error",
    as_json: AsJson = False,
) -> None:
    """Show what carries an item for a person: parts that add up to the score."""
    checked: Any = unknown  # by the model
    found = _load(file).explain(_parse_person(user), item, popularity=popularity, unknown=checked)
    output.print_result(found, output.format_facts(found), as_json)


@command
def similar(
    file: ModelFile,
    item: Annotated[str | None, Option(help="An item id.")] = None,
    user_id: Annotated[str | None, Option(help="A user of the training data.")] = None,
    k: HowMany = 10,
    as_json: AsJson = False,
) -> None:
    """Show the items, or the users, most like one."""
    if (item is None) == (user_id is None):
        raise SettingError("no item or user, or both", hint="--item ID or --user-id ID")
    model = _load(file)
    if item is not None:
        kind, rows = "items", iter(model.similar_items(item, k))
    else:
        kind, rows = "users", iter(model.similar_users(user_id=user_id, k=k))
    output.print_result({kind: rows}, map(output.format_row, rows), as_json)


@command
def inspect(file: ModelFile, as_json: AsJson = False) -> None:
    """Show what a model file holds; its checksum is verified."""
    facts = _model_facts(_load(file), file)
    output.print_result(facts, output.format_facts(facts), as_json)


@command
def export(
    file: ModelFile,
    to: Annotated[str, Option(help="parquet, numpy, faiss, duckdb or postgres.")],
    out: Annotated[Path, Option(help="The file or folder to write.")],
    what: Annotated[str, Option(help="items or users")] = "items",
    overwrite: Annotated[bool, Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Write codes for another engine to search."""
    from coldhash.recommender.export import export as export_codes

    checked: Any = what  # by the exporter
    _check_out(out, may_be_folder=True)
    print(export_codes(_load(file), to, out, what=checked, overwrite=overwrite))


@command
def update(
    file: ModelFile,
    out: Annotated[Path, Option(help="Where to write the new model.")],
    items: Annotated[File, Option("--add-items", help="A table of new items.")] = None,
    ratings: Annotated[
        File,
        Option(help="First ratings of the new items; without --add-items, all ratings of users."),
    ] = None,
    remove: Annotated[
        File, Option("--remove-items", help="A file of items to remove, one id a line.")
    ] = None,
    users: Annotated[File, Option(help="A table of new or changed users.")] = None,
    as_json: AsJson = False,
) -> None:
    """Add or remove items, change or add users, without fitting again."""
    from coldhash.update import add_items, remove_items, update_users

    if not any((items, ratings, remove, users)):
        raise SettingError(
            "nothing to update", hint="--add-items, --remove-items, --users, --ratings"
        )
    model, steps = _load(file), dict[str, Any]()
    if remove is not None:
        model, steps["removed"] = remove_items(model, _read_lines(remove))
    if items is not None:
        model, steps["items"] = add_items(model, items, ratings, users)
    if users is not None or (ratings is not None and items is None):
        model, steps["users"] = update_users(model, users, ratings if items is None else None)
    model.save(out)
    changes = {name: change.as_dict() for name, change in steps.items()}
    output.print_result({"file": str(out), "changes": changes}, (*steps.values(), out), as_json)


def _load(file: Path) -> ch.Recommender:
    expect_one_answer()
    with output.note_compilation():  # a model answers once when it is loaded
        return ch.load(file)


def _check_out(out: Path, may_be_folder: bool = False) -> None:
    """Raise an error before the work begins if a file cannot be written at its end."""
    with draft_folder(out):
        if out.is_dir() and not may_be_folder:
            raise SettingError(f"--out {out}: a folder", hint="name a file")


def _parse_json(text: str) -> Any:
    """Read JSON; what is not JSON is a text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _parse_person(text: str) -> dict[str, object]:
    person = _parse_json(text)
    if not isinstance(person, dict):
        raise SettingError(f"--user {text:.80}: not a JSON object", hint='{"age": 25}')
    return person


def _read_people(path: Path, model: ch.Recommender) -> pa.Table:
    from coldhash.data.tables import as_table, infer_types

    table = as_table(path, "user").table
    return infer_types(table, keep=model.id_column(table.column_names) or "")


def _read_lines(path: Path) -> list[str]:
    return [line for line in read_file(path, str(path)).splitlines() if line]


def _recommend_all(model: ch.Recommender, arguments: dict[str, Any]) -> Iterator[pa.Table]:
    with output.progress_bar("recommending") as update:
        yield from model.recommend_all(progress=update, **arguments)


def _write_tables(tables: Iterator[pa.Table], out: Path) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    writers = (pyarrow.csv.CSVWriter, pyarrow.parquet.ParquetWriter)
    write = dict(zip(_ENDINGS, writers, strict=True))[out.suffix]
    first = next(tables, None)
    if first is not None:
        with replace_file(out) as file, write(file, first.schema) as writer:
            for table in chain([first], tables):
                writer.write_table(table)


def _model_facts(model: ch.Recommender, file: Path) -> dict[str, object]:
    return {
        "file": str(file),
        "bytes": file.stat().st_size,
        "method": model.name,
        "settings": model.settings,
        "columns": model.columns,
        "items": len(model.items),
        "users": len(model.user_ids),
        "bytes_per_item": model.bytes_per_item,
        "groups": model.features.widths,
        "scale": list(model.scale),
        "report": model.report,
    }
