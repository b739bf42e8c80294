"""The command that serves a model."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from coldhash.cli.app import app
from coldhash.cli.recommend import ModelFile
from coldhash.errors import SettingError

TOKEN = "COLDHASH_TOKEN"


@app.command()
def serve(
    file: ModelFile,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 for any free one.")] = 8000,
    workers: Annotated[int, typer.Option(help="Processes that share the model file.")] = 1,
    token_file: Annotated[
        Path | None,
        typer.Option(help=f"A file that holds the token requests need; or the variable {TOKEN}."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="A name in the header Host to answer under; * for any."),
    ] = None,
    max_body: Annotated[int, typer.Option(help="Bytes of a request.")] = 1_000_000,
    max_k: Annotated[int, typer.Option(help="Items of an answer.")] = 1000,
    max_batch: Annotated[int, typer.Option(help="People of a request.")] = 1000,
    max_batch_items: Annotated[int, typer.Option(help="People x k of a request.")] = 20_000,
    max_history: Annotated[int, typer.Option(help="Ratings of a person.")] = 1000,
    timeout: Annotated[float, typer.Option(help="Seconds for a request.")] = 30.0,
) -> None:
    """Serve a model over HTTP, with a page to try it; a new model file is picked up."""
    try:
        from coldhash.serve import Limits
        from coldhash.serve.server import LOOPBACK, Serving
        from coldhash.serve.server import serve as run
    except ModuleNotFoundError as error:
        raise SettingError(
            f"{error.name} is not installed", hint="pip install 'coldhash[serve]'"
        ) from None

    limits = Limits(
        max_body=max_body, max_k=max_k, max_batch=max_batch, max_batch_items=max_batch_items,
        max_history=max_history, timeout=timeout,
    )  # fmt: skip
    token = _token(token_file)
    if token is None and host not in LOOPBACK:
        print(f"warning: anybody who reaches {host} may ask; see --token-file", file=sys.stderr)
    run(
        Serving(
            file=file, host=host, port=port, workers=workers, token=token, limits=limits,
            allowed_hosts=tuple(allowed_host or ()),
        )
    )  # fmt: skip


def _token(file: Path | None) -> str | None:
    if file is None:
        token = os.environ.get(TOKEN)
        if token is not None and not token.strip():
            raise SettingError(f"{TOKEN} is empty", hint="unset it, or write the token into it")
        return token
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"--token-file {file}: {error}") from None
    if not token:
        raise SettingError(f"--token-file {file} is empty", hint="write the token into it")
    return token
