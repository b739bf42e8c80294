"""The demo: a world that is made up, a model of it, what it is worth, and a page to try it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldhash.cli.app import app
from coldhash.errors import SettingError

if TYPE_CHECKING:
    from coldhash.evaluate.compare import ComparisonTable

STRANGER = {"age": 34, "gender": "female", "occupation": "nurse"}
METHODS = {"mfdcf": "MFDCF", "ridge": "ridge", "popularity": "popularity"}
K_AXIS = range(1, 21)


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option("--out", help="The folder for the model and the figure.")
    ] = Path("coldhash-demo"),
    serve: Annotated[
        bool, typer.Option("--serve/--no-serve", help="Open the page, or stop after the findings.")
    ] = True,
    port: Annotated[int, typer.Option(help="Of the page; 0 for any free one.")] = 8000,
) -> None:
    """Fit on the embedded sample, judge it beside popularity and ridge, and open the page."""
    from coldhash.data.sources import read
    from coldhash.evaluate.compare import compare_models
    from coldhash.registry import MODELS

    say("A made-up world: 2,000 users, 1,000 items. A fifth of the users are set aside, three")
    say("times over: nobody has seen their ratings. All that is known of them is their age,")
    say("gender, occupation and city. Which items will they like?")
    say("(The first run compiles, which may take a minute or two; the result is kept.)")
    data = read("sample")
    found = compare_models(data, {name: MODELS[name]() for name in METHODS}, splits=3)
    print("Accuracy@10 for strangers (a favourite among the items that they have not rated):")
    for each in found.rows:
        print(
            f"  {METHODS[each.model]:12} {each.metrics['accuracy@10']:.3f}"
            f"   (95%: {each.accuracy.low:.3f} to {each.accuracy.high:.3f})"
        )
    print(findings(found))
    say(f"The figure: {_figure(found, out)}")
    model = MODELS["mfdcf"]().fit(data)
    file = out / "sample.coldhash"
    model.save(file)
    say(f"The model: {file}. For somebody it has never seen, {json.dumps(STRANGER)}:")
    for row in model.recommend(STRANGER, k=5):
        print(f"  {row['rank']}. item {row['item_id']}  ({row['score']:.2f})")
    if serve:
        _open_page(file, port)


def say(text: str) -> None:
    """Talk; data goes elsewhere."""
    print(text, file=sys.stderr)


def findings(found: ComparisonTable) -> str:
    """Say in plain words what the comparison came to."""
    ours, others = found.rows[0], found.rows[1:]
    words = {
        "ahead": "is better than {}, beyond what chance explains",
        "level": "cannot be told from {}",
        "behind": "is worse than {}, beyond what chance explains",
    }
    said = [words[each.verdict or "level"].format(METHODS[each.model]) for each in others]
    popular = found.rows[-1].metrics["accuracy@10"]
    gain = 100 * (ours.metrics["accuracy@10"] / popular - 1)
    return (
        f"Found: with 8 bytes an item, {METHODS[ours.model]} {' and '.join(said)}.\n"
        f"Knowing a stranger's features finds {gain:.0f}% more favourites than showing everybody"
        " the popular items."
    )


def _figure(found: ComparisonTable, out: Path) -> Path:
    from coldhash.lab.figures import Line, Panel, draw, save

    lines = [
        Line(METHODS[each.model], K_AXIS, [each.metrics[f"accuracy@{k}"] for k in K_AXIS])
        for each in found.rows
    ]
    panel = Panel("Strangers in the sample world", "k", "Accuracy@k", lines)
    note = "3 splits, ties as expected"
    return save(draw("Recommending to strangers", [panel], 1, note), out, "demo")[0]


def _open_page(file: Path, port: int) -> None:
    import threading
    import webbrowser

    try:
        from coldhash.serve.server import Serving, serve
    except ModuleNotFoundError as error:
        raise SettingError(
            f"the page needs {error.name}", hint="pip install 'coldhash[serve]', or --no-serve"
        ) from None
    if port and _has_display():
        address = f"http://127.0.0.1:{port}/"
        threading.Timer(1.0, webbrowser.open, [address]).start()  # once somebody listens there
    say("The page is at the address below; Ctrl-C ends it.")
    serve(Serving(file=file, port=port))


def _has_display() -> bool:
    return sys.platform in ("win32", "darwin") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
