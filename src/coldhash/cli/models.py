"""Commands about models: fit, recommend, explain, ask, similar, inspect, export, update."""

from __future__ import annotations

import inspect as inspection
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

import coldhash as ch
from coldhash.arrays import expect_one_answer
from coldhash.cli import inputs, output
from coldhash.cli.inputs import Arguments, AsJson, ColumnNames, File, ModelFile, Text, Texts
from coldhash.errors import ColdhashError, ColumnError, SettingError
from coldhash.files import replace_file

if TYPE_CHECKING:
    import pyarrow as pa

    from coldhash.recommender.encoders import Question


HowMany = Annotated[int, Option("-k", help="How many to return.")]
_ONLY = 'Only items of which a column is this, or one of these: category=shoes, price={"max": 20}.'
_AT_A_TIME = 4096  # users of --all: some models need 27 bytes for each of them and each item
Where = Annotated[Texts, Option(help=_ONLY, metavar="COLUMN=VALUE")]
_PERSON = 'A person in JSON: {"age": 25, "history": {"1193": 5}}.'
_SHOWN = "Item columns to show, with commas: price,category."
Fields = Annotated[Text, Option(help=_SHOWN, callback=inputs.split)]
Popularity = Annotated[float, Option(help="How much it counts what everybody likes: from 1 to 0.")]
UnknownFields = Annotated[str, Option(help="Fields that the model does not know: error or ignore.")]


@inputs.command
def fit(
    out: Annotated[Path, Option(help="Where to write the model.")],
    source: inputs.DataOptions,
    model: Annotated[str, Option(help="The method: mfdcf, ridge, ...")] = "mfdcf",
    bits: Annotated[int | None, Option(help="Bits of a code.")] = None,
    seed: Annotated[int, Option(help="The seed of random numbers.")] = 0,
    setting: Annotated[
        Texts, Option("--set", help="Any other setting of the method.", metavar="NAME=VALUE")
    ] = None,
    parts: Annotated[File, Option(help="A folder that `coldhash prepare` made.")] = None,
    memory: Annotated[Text, Option(help="With --parts: the memory to use, e.g. 2GB.")] = None,
    dask: Annotated[Text, Option(help="Use a Dask cluster: its address, or `local`.")] = None,
    judge: Annotated[
        bool, Option("--judge", help="Also judge it on held-out users; the file keeps the figure.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model and write it to one file."""
    from coldhash.registry import settings_from
    from coldhash.scale.prepared import Prepared

    method = inputs.find_method(model)
    if (parts or dask) and "on" not in inspection.signature(method.fit).parameters:
        raise SettingError(f"{model} fits in memory only", hint="--model mfdcf")
    if parts is not None and source != inputs.DataOptions():
        raise SettingError("--parts already is the data", hint="give tables to `coldhash prepare`")
    if judge and (parts or dask):
        raise SettingError("--judge works in memory only", hint="without --parts and --dask")
    pairs = inputs.parse_pairs(setting, "--set", hint="NAME=VALUE")
    values = {} if bits is None else {"n_bits": bits}
    values |= {name: inputs.parse_json(text) for name, text in pairs}
    settings = settings_from(method, values)
    inputs.check_out(out)
    data: Any = source.read() if parts is None else Prepared.open(parts)
    with ExitStack() as stack:
        options: Arguments = {"seed": seed}
        if dask is not None:
            from coldhash.scale.dask import connect

            options["on"] = stack.enter_context(connect(dask))
        elif parts is not None:
            from coldhash.scale.places import Disk

            options["on"] = Disk(out.with_name(f"{out.name}.work"), memory)
        update = stack.enter_context(output.progress_bar(f"fitting {model}"))
        options["callback"] = lambda n, found: update(n + 1, text=f"objective {found:.6g}")
        fitted = settings.fit(data, **options)
        if judge:
            from coldhash.evaluate.compare import JUDGED, judge_held_out

            update(0, text="held-out users")
            judged = judge_held_out(data, settings, seed)
            fitted = replace(fitted, report={**fitted.report, JUDGED: judged})
        fitted.save(out)
    output.print_result(_model_facts(fitted, out), [out], as_json)


@dataclass(frozen=True)
class ItemOptions:
    """The options about which items count."""

    exclude: Annotated[Texts, Option(help="An item to leave out.")] = None
    where: Where = None
    unknown: UnknownFields = "error"

    def arguments(self) -> Arguments:
        """Return the arguments of the library."""
        return vars(self) | {"where": inputs.parse_where(self.where)}


@dataclass(frozen=True)
class RecommendOptions(ItemOptions):
    """The options of `Recommender.recommend`, by the same names."""

    k: HowMany = 10
    exclude_seen: Annotated[bool, Option(help="Leave out what a user has rated or bought.")] = True
    score: Annotated[str, Option(help="real, or hamming: codes on both sides.")] = "real"
    popularity: Popularity = 1.0
    fields: Fields = None


@inputs.command
def recommend(
    file: ModelFile,
    options: RecommendOptions,
    user: Annotated[Texts, Option(help=_PERSON)] = None,
    users: Annotated[File, Option(help="A table of people.")] = None,
    column: ColumnNames = None,
    user_id: Annotated[Texts, Option(help="A user of the training data.")] = None,
    everybody: Annotated[bool, Option("--all", help="All training users.")] = False,
    out: Annotated[File, Option(help="Write .csv or .parquet.")] = None,
    as_json: AsJson = False,
) -> None:
    """Recommend to strangers or to users of the training data."""
    if sum(map(bool, (user, users, user_id, everybody))) != 1:
        raise SettingError(
            "no people, or in several ways", hint="one of --user, --users, --user-id, --all"
        )
    if out is not None:
        inputs.check_out(out, ".csv", ".parquet")
    model = load_model(file)
    people: Any = _read_people(users, column, model) if users else None
    if user:
        people = [parse_person(text) for text in user]
    fallback: list[bool] = []

    def answers() -> Iterator[ch.Recommendations]:
        every = list(model.user_ids) if everybody else []
        starts = range(0, len(every), _AT_A_TIME)
        for known in [every[at : at + _AT_A_TIME] for at in starts] if everybody else [user_id]:
            answer = model.recommend(people, user_ids=known, **options.arguments())
            for note in answer.notes:
                print(f"note: {output.printable(note)}", file=sys.stderr)
            fallback.extend(answer.fallback.tolist())
            yield answer

    if out is not None:
        _write_tables((answer.to_arrow() for answer in answers()), out)
        print(out)
        return
    rows = (row for answer in answers() for row in answer)
    lines = (output.format_row(row, model.features.labels) for row in rows)
    output.print_result({"items": rows, "fallback": fallback}, lines, as_json)


@inputs.command
def explain(
    file: ModelFile,
    user: Annotated[str, Option(help=_PERSON)],
    item: Annotated[str, Option(help="An item id.")],
    popularity: Popularity = 1.0,
    unknown: UnknownFields = "error",
    as_json: AsJson = False,
) -> None:
    """Show what carries an item for a person: parts that add up to the score."""
    options: Arguments = {"popularity": popularity, "unknown": unknown}
    found = load_model(file).explain(parse_person(user), item, **options)
    output.print_result(found, output.format_facts(found), as_json)


@inputs.command
def ask(
    file: ModelFile,
    items: ItemOptions,
    user: Annotated[str, Option(help='A person in JSON: {"age": 25, "answers": {"7": 5}}.')] = "{}",
    n: Annotated[int, Option("-n", help="How many questions.")] = 5,
    kinds: Annotated[str, Option(help="What to ask about: items, fields.")] = "items,fields",
    as_json: AsJson = False,
) -> None:
    """Show what to ask a person next; in a terminal, ask and show how the list changes."""
    model, person = load_model(file), parse_person(user)
    options = {**items.arguments(), "kinds": kinds.split(","), "exclude": items.exclude or []}
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        found = model.ask(person, n, **options)
        lines = ("\t".join(map(output.cell, question.values())) for question in found)
        output.print_result({"questions": found}, lines, as_json)
        return
    _talk(model, person, n, options)


@inputs.command
def similar(
    file: ModelFile,
    item: Annotated[str, Option(help="An item id.")],
    k: HowMany = 10,
    where: Where = None,
    fields: Fields = None,
    as_json: AsJson = False,
) -> None:
    """Show the items most like one."""
    shown: Arguments = {"where": inputs.parse_where(where), "fields": fields}
    rows = load_model(file).similar_items(item, k, **shown)
    output.print_result({"items": iter(rows)}, map(output.format_row, rows), as_json)


@inputs.command
def inspect(file: ModelFile, as_json: AsJson = False) -> None:
    """Show what a model file holds; its checksum is verified."""
    facts = _model_facts(load_model(file), file)
    output.print_result(facts, output.format_facts(facts), as_json)


@inputs.command
def export(
    file: ModelFile,
    to: Annotated[str, Option(help="duckdb, sqlite, postgres or parquet.")],
    out: Annotated[Path, Option(help="The file to write.")],
) -> None:
    """Write the items, with their codes, for a database that ranks them by SQL."""
    from coldhash.recommender.export import export as export_items

    inputs.check_out(out)
    print(export_items(load_model(file), to, out))


@inputs.command
def query_sql(
    file: ModelFile,
    to: Annotated[str, Option(help="duckdb, sqlite or postgres.")],
    user: Annotated[str, Option(help=_PERSON)],
    k: HowMany = 10,
    planes: Annotated[int, Option(help="Bit planes of the query: more are more accurate.")] = 4,
    condition: Annotated[Text, Option(help="SQL after WHERE: year >= 1990.")] = None,
) -> None:
    """Print the SQL that ranks the items of an exported database for a person."""
    from coldhash.recommender import export as database

    options: Arguments = {"planes": planes, "condition": condition}
    print(database.query_sql(load_model(file), to, parse_person(user), k, **options))


@inputs.command
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
    column: ColumnNames = None,
    as_json: AsJson = False,
) -> None:
    """Add or remove items, change or add users, without fitting again."""
    from coldhash.evaluate.compare import JUDGED
    from coldhash.update import Change, add_items, remove_items, update_users

    if not any((items, ratings, remove, users)):
        raise SettingError("nothing to update", hint="--add-items, --remove-items, --users ...")
    model, steps = load_model(file), dict[str, Change]()
    new_items, rated, people = _read_tables([items, ratings, users], column)
    if remove:
        lines = inputs.read_file(remove, str(remove)).splitlines()
        model, steps["removed"] = remove_items(model, [line for line in lines if line])
    if items:
        model, steps["items"] = add_items(model, new_items, rated, people)
    if users or (ratings and not items):
        model, steps["users"] = update_users(model, people, None if items else rated)
    report = {name: value for name, value in model.report.items() if name != JUDGED}
    replace(model, report=report).save(out)  # what was judged is the model before
    changes = {name: change.as_dict() for name, change in steps.items()}
    output.print_result({"file": str(out), "changes": changes}, (*steps.values(), out), as_json)


def load_model(file: Path) -> ch.Recommender:
    """Read a model."""
    expect_one_answer()
    with output.note_compilation():  # a model answers once when it is loaded
        return ch.load(file)


def parse_person(text: str) -> dict[str, object]:
    """Read a person in JSON."""
    person = inputs.parse_json(text)
    if not isinstance(person, dict):
        raise SettingError(f"--user {text:.80}: not a JSON object", hint='{"age": 25}')
    return person


def _read_tables(paths: list[Path | None], columns: list[str] | None) -> list[Any]:
    """Read tables, their columns called by their roles; without --column, they are read later."""
    from coldhash.data.reading import RatingOptions
    from coldhash.data.tables import as_table

    chosen = RatingOptions(inputs.parse_columns(columns)).columns
    roles = {name: role for role, name in chosen.items() if name is not None}
    if not roles:
        return paths
    tables = [None if path is None else as_table(path, "user").table for path in paths]
    every = [name for table in tables if table is not None for name in table.column_names]
    for name in roles:
        if name not in every:
            raise ColumnError(f"no table has a column {name!r}", hint=f"there are: {every}")
    for at, table in enumerate(tables):
        if table is not None:
            tables[at] = table.rename_columns([roles.get(n, n) for n in table.column_names])
    return tables


def _read_people(path: Path, columns: list[str] | None, model: ch.Recommender) -> pa.Table:
    from coldhash.data.tables import as_table, infer_types

    table = as_table(_read_tables([path], columns)[0], "user").table
    return infer_types(table, keep=model.id_column(table.column_names) or "")


def _write_tables(tables: Iterator[pa.Table], out: Path) -> None:
    from pyarrow import csv, parquet

    writers = {".csv": csv.CSVWriter, ".parquet": parquet.ParquetWriter}
    first = next(tables)
    with replace_file(out) as file, writers[out.suffix](file, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def _model_facts(model: ch.Recommender, file: Path) -> dict[str, object]:
    from coldhash.recommender.model_file import file_date, read_version

    with file.open("rb") as opened:
        version = read_version(opened)
    return {
        "file": str(file),
        "bytes": file.stat().st_size,
        "model": version,
        "date": file_date(file.stat().st_mtime_ns),
        "coldhash": ch.__version__,
        "method": model.name,
        "settings": model.settings,
        "columns": model.columns,
        "items": len(model.items),
        "users": len(model.user_ids),
        "ratings": len(model.seen.indices),
        "feedback": model.feedback.kind,
        "bytes_per_item": model.bytes_per_item,
        "groups": model.features.widths,
        "scale": list(model.scale),
        "report": model.report,
    }


def _talk(model: ch.Recommender, person: Arguments, n: int, options: Arguments) -> None:
    """Ask n questions one by one, and print the list after every answer."""
    listed = partial(model.recommend, k=10, unknown=options["unknown"])
    before, skipped = _print_list(listed(person), []), set[str]()
    (low, high), usual = model.history_scale, model.features.example()
    for _ in range(n):
        # fields that were skipped stay missing, so one question more than these is asked for
        found = model.ask(person, 1 + len(skipped), **options)
        left = (each for each in found if each["kind"] == "item" or each["name"] not in skipped)
        if (question := next(left, None)) is None:
            break
        text = output.cell(question["title"] or question["name"])
        rate = f"{low:g} to {high:g}, empty: I do not know it"
        such = f"such as {output.cell(usual.get(question['name']))}, empty: skip"
        hint = rate if question["kind"] == "item" else such
        print(f"\n{text}? ({question['why']})")
        while True:
            given = input(f"{hint}> ").strip()
            changed = _with_answer(person, question, given)
            try:
                before = _print_list(listed(changed), before)
                break
            except ColdhashError as error:
                print(output.cell(str(error)))
        if question["kind"] == "field" and not given:
            skipped.add(question["name"])
        person = changed


def _with_answer(person: Arguments, question: Question, given: str) -> Arguments:
    value = inputs.parse_json(given) if given else None
    if question["kind"] == "field":
        return {**person, question["name"]: value}
    answers: Arguments = person.get("answers") or {}
    return {**person, "answers": {**answers, question["name"]: value}}


def _print_list(rows: ch.Recommendations, before: list[str]) -> list[str]:
    """Print the best items, with how far each has moved; return their ids."""
    ids = [str(row["item_id"]) for row in rows]
    for place, row in enumerate(rows):
        moved = "new" if ids[place] not in before else f"{before.index(ids[place]) - place:+d}"
        mark = "" if not before or moved == "+0" else moved
        print(f"{place + 1:>3} {mark:>4}  {output.cell(row.get('title') or row['item_id'])}")
    return ids
