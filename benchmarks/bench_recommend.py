"""One stranger on MovieLens-1M: through the Python API, and on the command line."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from table import Row, best_times, finish, options

from coldhash import MFDCF, load, read

STRANGER = {"gender": "F", "age": 25}


def median_microseconds(model, person: dict, repeats: int) -> float:
    for _ in range(50):
        model.recommend(person, k=10)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        model.recommend(person, k=10)
        times.append(time.perf_counter() - start)
    return float(np.median(times) * 1e6)


def command_seconds(file: Path, repeats: int) -> float:
    command = [sys.executable, "-m", "coldhash", "recommend", str(file), "--user", '{"age": 25}']
    run = partial(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
    return best_times({"command": run}, repeats + 1)["command"]


def main() -> None:
    args = options(__doc__ or "")
    data = read("sample") if args.data is None else read("ml-1m", args.data)
    repeats = 200 if args.quick else 2000
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.coldhash"
        MFDCF().fit(data).save(file)
        model = load(file)
        history = STRANGER | {"history": {data.ratings.items[0]: 5, data.ratings.items[1]: 3}}
        stripes = model.items.index.stripes
        alone = median_microseconds(model, STRANGER, repeats)
        rated = median_microseconds(model, history, repeats)
        rows = [
            Row("a stranger, median µs / 150", alone, 150, "<= 1"),
            Row("a stranger who rated two items / without", rated, alone, "<= 10"),
            Row("bytes of codes an item / 8", stripes.nbytes / len(model.items), 8, "<= 1.02"),
            Row("coldhash recommend, seconds / 1", command_seconds(file, 3), 1, "<= 1"),
        ]
    finish(rows, args.out)


if __name__ == "__main__":
    main()
