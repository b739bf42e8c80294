"""The command that changes a model without fitting it again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from coldhash.cli.app import AsJson, app, print_json
from coldhash.cli.recommend import ModelFile, _lines
from coldhash.errors import SettingError


@app.command()
def update(
    file: ModelFile,
    out: Annotated[Path, typer.Option("--out", help="Where to write the new model.")],
    items: Annotated[
        Path | None, typer.Option("--add-items", help="A table of items the model has not seen.")
    ] = None,
    ratings: Annotated[
        Path | None,
        typer.Option(
            "--ratings",
            help="First ratings of the new items; without --add-items, all ratings of users.",
        ),
    ] = None,
    remove: Annotated[
        Path | None,
        typer.Option("--remove-items", help="A text file of items to take out, one id a line."),
    ] = None,
    users: Annotated[
        Path | None,
        typer.Option("--users", help="A table of users who are new, or have changed."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add or remove items, change or add users; nothing is fitted again."""
    from coldhash.recommender.persistence import load
    from coldhash.update import add_items, remove_items, update_users

    if not any((items, ratings, remove, users)):
        raise SettingError(
            "say what has changed", hint="--add-items, --remove-items, --users, --ratings"
        )
    model, steps = load(file), dict[str, Any]()
    if remove is not None:
        model, steps["removed"] = remove_items(model, _lines(remove))
    if items is not None:
        model, steps["items"] = add_items(model, items, ratings, users)
    if users is not None or (ratings is not None and items is None):
        model, steps["users"] = update_users(model, users, ratings if items is None else None)
    model.save(out)
    if as_json:
        changes = {name: change.as_dict() for name, change in steps.items()}
        print_json({"file": str(out), "changes": changes})
        return
    for change in steps.values():
        print(change)
    print(out)
