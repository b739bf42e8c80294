"""Recommendations to everybody, on a Dask cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def recommend_on(address: str, file: Path, out: Path, k: int, options: dict[str, Any]) -> None:
    """Recommend to everybody on a cluster, with a progress bar."""
    from rich.console import Console
    from rich.progress import Progress

    from coldhash.scale import recommend_all_on
    from coldhash.scale.dask import connect

    with connect(address) as client, Progress(console=Console(stderr=True)) as bars:
        bar = bars.add_task("recommending")
        recommend_all_on(
            client,
            file,
            out,
            k,
            progress=lambda done, total: bars.update(bar, completed=done, total=total),
            **options,
        )
    print(out)
