"""One fit of prepared data in a process of its own: prints what it measured about itself as JSON.

python fit_once.py FOLDER memory|disk|dask|saved ROUNDS
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from typing import Any

from coldhash import MFDCF
from coldhash.scale import Disk, Memory, Prepared
from coldhash.scale.dask import connect


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def timed(settings: MFDCF, data: Prepared, on: Any) -> tuple[Any, float]:
    begin = time.perf_counter()
    model = settings.fit(data, on=on)
    return model, time.perf_counter() - begin


def main(folder: str, place: str, rounds: int) -> None:
    warnings.simplefilter("ignore")
    data, settings = Prepared.open(folder), MFDCF(n_rounds=rounds, tolerance=0.0, ridge=30.0)
    workers: list[float] = []
    if place == "dask":
        with connect("local") as client:
            model, seconds = timed(settings, data, client)
            workers = list(client.run(peak).values())
    else:
        on = Memory() if place == "memory" else Disk(f"{folder}/work", memory="2GB")
        model, seconds = timed(settings, data, on)
    if place == "saved":
        begin = time.perf_counter()
        model.save(f"{folder}/m.coldhash")
        seconds += time.perf_counter() - begin
    facts = {
        "seconds": seconds,
        "peak": peak(),
        "workers": workers,
        "steps": model.report["seconds"],
        "objective": model.report["objective"],
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
