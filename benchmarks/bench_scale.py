"""Past one machine's memory: how a round's time and memory grow, from disk, on Dask, end to end.

Every fit runs in a process of its own, so that its peak memory is its own. The worlds are drawn
user by user block from a seed: 64 bits, 100 ratings a user, 10^5 items by a Zipf law, a profile of
two columns for users and one for items. A world that is in the folder of the data sets, as
scale-USERS, is not drawn again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from table import Row, exponent, finish, parser, run_python

N_ITEMS, PER_USER, BLOCK = 100_000, 100, 50_000
ROUNDS = 10
STEPS = ("users", "items", "objective")
FIT = Path(__file__).with_name("fit_once.py")


def write_world(path: Path, n_users: int, seed: int = 0) -> None:
    """Write ratings, users and items; each user rates different items, popular ones more often."""
    rng = np.random.default_rng(seed)
    ladder = np.cumsum(1.0 / np.arange(1, N_ITEMS + 1) ** 0.8)
    ladder /= ladder[-1]
    taste = rng.normal(size=(20, N_ITEMS)).astype(np.float32)  # of 20 kinds of people
    schema = pa.schema([("user_id", pa.int64()), ("item_id", pa.int64()), ("rating", pa.float32())])
    kinds = rng.integers(20, size=n_users)
    with pq.ParquetWriter(path / "ratings.parquet", schema) as writer:
        for first in range(0, n_users, BLOCK):
            users = np.arange(first, min(first + BLOCK, n_users))
            owners = np.repeat(users, PER_USER * 21 // 20)
            items = np.searchsorted(ladder, rng.random(len(owners)), side="right")
            pairs = np.unique(owners * N_ITEMS + items)  # repetitions go; about 100 a user stay
            owners, items = pairs // N_ITEMS, pairs % N_ITEMS
            score = 3.4 + taste[kinds[owners], items] + rng.normal(scale=0.7, size=len(items))
            values = np.clip(np.rint(score), 1, 5).astype(np.float32)
            writer.write_table(pa.table([owners, items, values], schema=schema))
    people = {"user_id": np.arange(n_users), "kind": kinds, "age": rng.integers(10, 90, n_users)}
    pq.write_table(pa.table(people), path / "users.parquet")
    things = {"item_id": np.arange(N_ITEMS), "genre": rng.integers(18, size=N_ITEMS)}
    pq.write_table(pa.table(things), path / "items.parquet")


def prepared(path: Path) -> tuple[float, float]:
    """Prepare by the command line; gives seconds and peak memory."""
    arguments = ["prepare", "--ratings", path / "ratings.parquet", "--users",
                 path / "users.parquet", "--items", path / "items.parquet", "--out",
                 path / "parts", "--memory", "2GB"]  # fmt: skip
    cost = run_python("-m", "coldhash", *arguments)
    return cost.seconds, cost.peak


def fitted(path: Path, place: str, rounds: int) -> dict:
    """Fit in a process of its own; gives what it measured about itself."""
    command = [sys.executable, FIT, path / "parts", place, rounds]
    run = subprocess.run(
        list(map(str, command)), stdout=subprocess.PIPE, encoding="utf-8", check=True
    )
    facts = json.loads(run.stdout.splitlines()[-1])
    facts["round"] = sum(facts["steps"][step] for step in STEPS) / len(facts["objective"])
    return facts


def fit_everywhere(path: Path, places: Iterable[str], rounds: int) -> dict[str, dict]:
    """Fit once in each place, one after the other."""
    turn = {}
    for place in places:
        turn[place] = fitted(path, place, rounds)
        say(place, turn[place])
    return turn


def main() -> None:
    chosen = parser(__doc__ or "")
    chosen.add_argument("--users", type=int, nargs="+", help="sizes, instead of four up to 10^6")
    args = chosen.parse_args()
    sizes = [10_000, 30_000, 100_000] if args.quick else [10_000, 100_000, 300_000, 1_000_000]
    sizes = args.users or sizes
    rounds = 3 if args.quick else 4
    rows, rating_counts, by_place = [], [], {"memory": [], "disk": [], "dask": []}
    for n_users in sizes:
        path = Path(tempfile.mkdtemp(prefix="coldhash-bench-"))
        try:
            drawn = (args.data or path) / f"scale-{n_users}"
            for file in drawn.glob("*.parquet"):
                (path / file.name).symlink_to(file.resolve())
            if not drawn.exists():
                write_world(path, n_users)
            seconds, peak = prepared(path)
            facts = json.loads((path / "parts" / "manifest.json").read_text(encoding="utf-8"))
            rating_counts.append(float(facts["n_ratings"]))
            print(f"{n_users:,} users, {facts['n_ratings']:,} ratings: prepared in {seconds:.1f} s,"
                  f" peak {peak / 1e9:.2f} GB")  # fmt: skip
            n_turns = 2 if n_users == sizes[-1] else 1  # noise meets the places alike
            turns = [fit_everywhere(path, by_place, rounds) for _ in range(n_turns)]
            for place, found in by_place.items():
                found.append(min((turn[place] for turn in turns), key=lambda one: one["round"]))
            if n_users == sizes[-1]:
                rows += at_full_size(path, by_place, seconds, peak)
        finally:
            shutil.rmtree(path)
    same = {json.dumps(found[-1]["objective"]) for found in by_place.values()}
    rows.append(Row("objectives that differ between places", float(len(same) - 1), 1.0, "<= 0"))
    if len(sizes) > 1:
        times = [one["round"] for one in by_place["memory"]]
        peaks = [max(one["workers"]) for one in by_place["dask"]]
        growth = {"a round's time": times, "a worker's peak memory": peaks}
        for what, found in growth.items():
            figure = exponent(rating_counts, found)
            rows.append(Row(f"exponent of {what}, by ratings", figure, 1.0, "<= 1.1"))
    finish(rows, args.out)


def say(place: str, facts: dict) -> None:
    workers = [round(one / 1e9, 2) for one in facts["workers"]]
    steps = {step: round(seconds, 2) for step, seconds in facts["steps"].items()}
    print(
        f"  {place:6}: {facts['seconds']:.1f} s, a round {facts['round']:.2f} s, "
        f"peak {facts['peak'] / 1e9:.2f} GB, workers {workers}, {steps}",
        flush=True,
    )


def at_full_size(path: Path, by_place: dict, seconds: float, peak: float) -> list[Row]:
    """Compare the places at the largest size, and fit once from the beginning to the end."""
    memory, disk, dask = (by_place[place][-1] for place in ("memory", "disk", "dask"))
    whole = fitted(path, "saved", ROUNDS)
    return [
        Row("a round on Dask, 2 workers / in memory", dask["round"], memory["round"], "<= 1.5"),
        Row("a fit on Dask, 2 workers / in memory", dask["seconds"], memory["seconds"], "<= 1.5"),
        Row("a fit from disk / in memory", disk["seconds"], memory["seconds"], "<= 2"),
        Row("peak of a fit from disk / 2 GB", disk["peak"], 2e9, "<= 1"),
        Row("peak with the model saved / 2 GB", whole["peak"], 2e9, "<= 1"),
        Row("peak of the preparation / 2 GB", peak, 2e9, "<= 1"),
        Row(
            "minutes, prepared and fit from disk, 10 rounds / 4",
            (seconds + whole["seconds"]) / 60,
            4.0,
            "<= 1",
        ),
    ]


if __name__ == "__main__":
    main()
