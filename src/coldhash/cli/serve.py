"""Commands that open a page: serve, demo."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

import coldhash as ch
from coldhash.arrays import expect_one_answer
from coldhash.cli.inputs import Arguments, File, ModelFile, Texts, command, read_file
from coldhash.errors import SettingError, import_extra

if TYPE_CHECKING:
    import numpy as np

_TOKEN = "COLDHASH_TOKEN"
_N_SHOWN, _N_GIVEN = 5, 5  # items of a list, and ratings
_LIKED = 4
_DEMO_INTRODUCTION = """\
A generated data set: 2,000 people, 1,000 titles. The model never sees a fifth of the people.
(The first run compiles for some seconds; the result is kept.)"""


@dataclass(frozen=True)
class LimitOptions:
    """The options that are limits of requests, by the names of `Limits`."""

    max_body: Annotated[int, Option(help="Bytes of a request.")] = 1_000_000
    max_k: Annotated[int, Option(help="Items of an answer.")] = 1000
    max_batch_items: Annotated[int, Option(help="People x k of a request.")] = 20_000
    max_history: Annotated[int, Option(help="Ratings of a person.")] = 1000
    timeout: Annotated[float, Option(help="Seconds for a request.")] = 30.0


@dataclass(frozen=True)
class ServerOptions:
    """The options that are settings of the server, by the names of `Serving`."""

    host: Annotated[str, Option(help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Option(min=0, max=65535, help="The port; 0 for any free one.")] = 8000
    workers: Annotated[int, Option(min=1, help="Processes that share the model file.")] = 1


@command
def serve(
    file: ModelFile,
    server: ServerOptions,
    limits: LimitOptions,
    token_file: Annotated[File, Option(help=f"The token that requests need; or {_TOKEN}.")] = None,
    allowed_host: Annotated[Texts, Option(help="A host name to answer under; * for any.")] = None,
    allowed_origin: Annotated[
        Texts, Option(help="An origin of web pages that may send requests; * for any.")
    ] = None,
) -> None:
    """Serve a model over HTTP, with a page to try it; a new model file is picked up."""
    hosts, origins = tuple(allowed_host or ()), tuple(allowed_origin or ())
    settings = {"allowed_hosts": hosts, "allowed_origins": origins, **vars(server)}
    _run_server(file, limits, token=_read_token(token_file), **settings)


@command
def demo(
    out: Annotated[Path, Option(help="The folder for the model.")] = Path("coldhash-demo"),
    serve: Annotated[bool, Option("--serve/--no-serve", help="Open the page at the end.")] = True,
    port: Annotated[
        int, Option(min=0, max=65535, help="The port of the page; 0 for any free one.")
    ] = 8000,
) -> None:
    """Show what strangers in the embedded sample get, judge it, and open the page."""
    from coldhash.evaluate.compare import HELD_OUT, JUDGED, judge_held_out

    if not serve:
        expect_one_answer()
    print(_DEMO_INTRODUCTION, file=sys.stderr)
    data = ch.read("sample")
    train, cold = ch.split_cold_users(data, HELD_OUT)
    print(*_show_strangers(ch.MFDCF().fit(train), cold), sep="\n")
    judged = judge_held_out(data, ch.MFDCF())
    print(*_format_judged(judged), sep="\n")
    model = ch.MFDCF().fit(data)
    file = out / "sample.coldhash"
    out.mkdir(parents=True, exist_ok=True)
    replace(model, report={**model.report, JUDGED: judged}).save(file)
    print(f"The model, fitted on all people: {file}", file=sys.stderr)
    if serve:
        _open_page(file, port)


def _show_strangers(model: ch.Recommender, cold: ch.Dataset) -> Iterator[str]:
    """Show three held-out people, their lists, and what five ratings of the first one change."""
    import numpy as np

    everybody = zip(cold.users.to_pylist(), cold.ratings.matrix.toarray(), strict=True)
    people = [each for each in everybody if None not in each[0].values()][:3]

    def show(person: Arguments, rated: np.ndarray) -> list[str]:
        found = model.recommend(person, k=_N_SHOWN)
        marks = ["+" if rated[row] >= _LIKED else " " for row in found.rows[0]]
        return [f"  {mark} {item['title']}" for mark, item in zip(marks, found, strict=True)]

    yield "Three strangers, and what they get (+: in truth they rated it 4 or 5)"
    for person, rated in people:
        yield ", ".join(map(str, person.values()))
        yield from show(person, rated)
    person, rated = people[0]
    known = np.flatnonzero(rated)
    given = known[np.argsort(-model.popularity[known], kind="stable")][:_N_GIVEN]
    yield "The first one rates five titles"
    for row, title in zip(given, cold.items.column("title").take(given).to_pylist(), strict=True):
        yield f"  {rated[row]:g} of 5: {title}"
    yield "and gets"
    before = show(person, rated)
    history = {model.item_ids[row]: float(rated[row]) for row in given}
    for line in show({**person, "history": history}, rated):
        yield line if line in before else f"{line}  (new)"


def _format_judged(judged: dict[str, Any]) -> Iterator[str]:
    """Format what `judge_held_out` found."""
    k = judged["k"]
    yield f"{judged['users']:,} strangers: how often a favourite is in the first {k} of some 1,000"
    for row in judged["rows"]:
        ours, popular = row["model"], row["popularity"]["mean"]
        yield (
            f"  {row['given']} ratings known: {ours['mean']:.3f}  (95%: {ours['low']:.3f} to"
            f" {ours['high']:.3f}), {ours['mean'] / popular - 1:.0%} more than by popularity,"
            f" {popular:.3f}"
        )


def _read_token(file: Path | None) -> str | None:
    name = _TOKEN if file is None else f"--token-file {file}"
    token = os.environ.get(name) if file is None else read_file(file, name)
    if token is not None and not token.strip():
        raise SettingError(f"{name} is empty", hint="write the token into it, or leave it out")
    return token


def _open_page(file: Path, port: int) -> None:
    import threading
    import webbrowser

    displays = ("DISPLAY", "WAYLAND_DISPLAY")
    if port and (sys.platform in ("win32", "darwin") or any(map(os.environ.get, displays))):
        address = f"http://127.0.0.1:{port}/"
        threading.Timer(1.0, webbrowser.open, [address]).start()  # when the server listens
    print("The page is at the address below; Ctrl-C ends it.", file=sys.stderr)
    _run_server(file, LimitOptions(), port=port)


def _run_server(file: Path, limits: LimitOptions, **settings: Any) -> None:
    server = import_extra("coldhash.serve.server", "serve")
    serving = server.Serving(file=file, limits=server.Limits(**vars(limits)), **settings)
    server.serve(serving)
