"""The command that asks: questions for a person, and, in a terminal, a list that follows."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

from typer import Option

from coldhash.cli import models
from coldhash.cli.inputs import Arguments, AsJson, ModelFile, command
from coldhash.cli.models import ItemOptions, UnknownFields
from coldhash.cli.output import cell, print_result
from coldhash.errors import ColdhashError

if TYPE_CHECKING:
    from coldhash.recommender.ask import Question
    from coldhash.recommender.recommender import Recommender
    from coldhash.recommender.results import Recommendations


@command
def ask(
    file: ModelFile,
    items: ItemOptions,
    user: Annotated[str, Option(help='A person in JSON: {"age": 25, "answers": {"7": 5}}.')] = "{}",
    n: Annotated[int, Option("-n", help="How many questions.")] = 5,
    kinds: Annotated[str, Option(help="What to ask about: items, fields.")] = "items,fields",
    unknown: UnknownFields = "error",
    as_json: AsJson = False,
) -> None:
    """Show what to ask a person next; in a terminal, ask and show how the list changes."""
    model, person = models.load_model(file), models.parse_person(user)
    options = {**items.arguments(), "kinds": kinds.split(","), "unknown": unknown}
    options["exclude"] = items.exclude or []
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        found = model.ask(person, n, **options)
        lines = ("\t".join(map(cell, question.values())) for question in found)
        print_result({"questions": found}, lines, as_json)
        return
    _talk(model, person, n, options)


def _talk(model: Recommender, person: Arguments, n: int, options: Arguments) -> None:
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
        text = cell(question["title"] or question["name"])
        rate = f"{low:g} to {high:g}, empty: I do not know it"
        such = f"such as {cell(usual.get(question['name']))}, empty: skip"
        hint = rate if question["kind"] == "item" else such
        print(f"\n{text}? ({question['why']})")
        while True:
            given = input(f"{hint}> ").strip()
            changed = _with_answer(person, question, given)
            try:
                before = _print_list(listed(changed), before)
                break
            except ColdhashError as error:
                print(cell(str(error)))
        if question["kind"] == "field" and not given:
            skipped.add(question["name"])
        person = changed


def _with_answer(person: Arguments, question: Question, given: str) -> Arguments:
    value = models.parse_json(given) if given else None
    if question["kind"] == "field":
        return {**person, question["name"]: value}
    answers: Arguments = person.get("answers") or {}
    return {**person, "answers": {**answers, question["name"]: value}}


def _print_list(rows: Recommendations, before: list[str]) -> list[str]:
    """Print the best items, with how far each has moved; return their ids."""
    ids = [str(row["item_id"]) for row in rows]
    for place, row in enumerate(rows):
        moved = "new" if ids[place] not in before else f"{before.index(ids[place]) - place:+d}"
        mark = "" if not before or moved == "+0" else moved
        print(f"{place + 1:>3} {mark:>4}  {cell(row.get('title') or row['item_id'])}")
    return ids
