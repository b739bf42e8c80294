"""Commands that open a page: serve, demo."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Option

import coldhash as ch
from coldhash.cli.app import File, ModelFile, Texts, command, read_file
from coldhash.errors import SettingError

_TOKEN = "COLDHASH_TOKEN"
_STRANGER = {"age": 34, "gender": "female", "occupation": "nurse"}
_DEMO_METHODS = ("mfdcf", "ridge", "popularity")
_DEMO_INTRODUCTION = """\
A generated data set: 2,000 users, 1,000 items. A fifth of the users is set aside, in three
random splits: the models never see their ratings, only age, gender, occupation and city.
Which items will they like?
(The first run compiles, which may take a minute or two; the result is kept.)"""


@dataclass(frozen=True)
class LimitOptions:
    """The options that are limits of requests, by the names of `Limits`."""

    max_body: Annotated[int, Option(help="Bytes of a request.")] = 1_000_000
    max_k: Annotated[int, Option(help="Items of an answer.")] = 1000
    max_batch: Annotated[int, Option(help="People of a request.")] = 1000
    max_batch_items: Annotated[int, Option(help="People x k of a request.")] = 20_000
    max_history: Annotated[int, Option(help="Ratings of a person.")] = 1000
    timeout: Annotated[float, Option(help="Seconds for a request.")] = 30.0


@dataclass(frozen=True)
class ServerOptions:
    """The options that are settings of the server, by the names of `Serving`."""

    host: Annotated[str, Option(help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Option(help="The port; 0 for any free one.")] = 8000
    workers: Annotated[int, Option(help="Processes that share the model file.")] = 1


@command
def serve(
    file: ModelFile,
    server: ServerOptions,
    limits: LimitOptions,
    token_file: Annotated[File, Option(help=f"The token that requests need; or {_TOKEN}.")] = None,
    allowed_host: Annotated[Texts, Option(help="A host name to answer under; * for any.")] = None,
) -> None:
    """Serve a model over HTTP, with a page to try it; a new model file is picked up."""
    hosts = tuple(allowed_host or ())
    _run_server(file, limits, token=_read_token(token_file), allowed_hosts=hosts, **vars(server))


@command
def demo(
    out: Annotated[Path, Option(help="The folder for the model and the figure.")] = Path(
        "coldhash-demo"
    ),
    serve: Annotated[bool, Option("--serve/--no-serve", help="Open the page at the end.")] = True,
    port: Annotated[int, Option(help="The port of the page; 0 for any free one.")] = 8000,
) -> None:
    """Fit on the embedded sample, compare with popularity and ridge, and open the page."""
    from coldhash.evaluate.compare import compare_models

    print(_DEMO_INTRODUCTION, file=sys.stderr)
    data = ch.read("sample")
    found = compare_models(data, {name: ch.MODELS[name]() for name in _DEMO_METHODS}, splits=3)
    print(found)
    gain = found.rows[0].accuracy.mean / found.rows[-1].accuracy.mean - 1
    print(f"With 8 bytes per item, MFDCF finds {gain:.0%} more favourites than popularity.")
    out.mkdir(parents=True, exist_ok=True)
    figure = found.plot()
    for ending in ("png", "svg"):
        figure.savefig(out / f"demo.{ending}")
    print(f"The figure: {out / 'demo.png'}", file=sys.stderr)
    model = ch.MODELS["mfdcf"]().fit(data)
    file = out / "sample.coldhash"
    model.save(file)
    print(f"The model: {file}. For a stranger, {json.dumps(_STRANGER)}:", file=sys.stderr)
    for row in model.recommend(_STRANGER, k=5):
        print(f"  {row['rank']}. item {row['item_id']}  ({row['score']:.2f})")
    if serve:
        _open_page(file, port)


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
    try:
        from coldhash.serve import Limits
        from coldhash.serve.server import Serving
        from coldhash.serve.server import serve as run
    except ModuleNotFoundError as error:
        raise SettingError(
            f"{error.name} is not installed", hint="pip install 'coldhash[serve]'"
        ) from None
    run(Serving(file=file, limits=Limits(**vars(limits)), **settings))
