"""How a command works on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coldhash.errors import SettingError

if TYPE_CHECKING:
    from distributed import Client


@contextmanager
def cluster(address: str) -> Iterator[Client]:
    """Connect to a cluster, or start one on this machine (`local`) for as long as it is needed."""
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise SettingError("Dask is not installed", hint="pip install 'coldhash[dask]'") from None
    if address == "local":
        with (
            LocalCluster(threads_per_worker=1, dashboard_address=None) as local,
            Client(local) as client,
        ):
            yield client
        return
    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise SettingError(
            f"--dask {address}: {error}", hint="local, or an address such as tcp://host:8786"
        ) from None
    with client:
        yield client


def recommend_on(address: str, file: Path, out: Path, k: int, options: dict[str, Any]) -> None:
    """Recommend to everybody on a cluster, with a progress bar."""
    from rich.console import Console
    from rich.progress import Progress

    from coldhash.scale.batch import recommend_all_on

    with cluster(address) as client, Progress(console=Console(stderr=True)) as bars:
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
