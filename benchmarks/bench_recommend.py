"""One stranger on MovieLens-1M, from a dict to ids and scores, or to rows with titles."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from table import Row, finish, options

from coldhash import MFDCF, load, read

STRANGER = {"gender": "F", "age": 25}


def median_microseconds(ask: Callable[[], object], repeats: int) -> float:
    for _ in range(50):
        ask()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        ask()
        times.append(time.perf_counter() - start)
    return float(np.median(times) * 1e6)


def main() -> None:
    args = options(__doc__ or "")
    data = read("sample") if args.data is None else read("ml-1m", args.data)
    repeats = 200 if args.quick else 2000
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.coldhash"
        MFDCF().fit(data).save(file)
        model = load(file)
        items = data.ratings.items
        people = {
            "a stranger": (STRANGER, 90),
            "who liked two items": (STRANGER | {"history": {items[0]: 5, items[1]: 5}}, 200),
            "who disliked one of two": (STRANGER | {"history": {items[0]: 5, items[1]: 1}}, 200),
        }
        stripes, rows = model.items.stripes, []
        for name, (person, target) in people.items():
            ask = partial(model.recommend, person, k=10)
            alone = median_microseconds(ask, repeats)
            shown = median_microseconds(lambda ask=ask: [row["title"] for row in ask()], repeats)
            rows.append(Row(f"{name}, median µs / {target}", alone, target, "<= 1"))
            rows.append(Row(f"{name}, rows with titles / without", shown, alone, "<= 2"))
        rows += [
            Row("bytes of codes an item / 8", stripes.nbytes / len(model.items), 8, "<= 1.02"),
        ]
    finish(rows, args.out)


if __name__ == "__main__":
    main()
