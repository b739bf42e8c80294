"""The model file at ten million items: what a process that serves it costs, and how soon it is up.

Memory is measured in children: what only they hold, after imports and a first answer of a small
model, so that compiled code does not count, and while another process has the same file mapped, so
that pages they share with it do not count either.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array
from table import Row, best_times, finish, options

from coldhash import MFDCF, Ids, Recommender, load, read
from coldhash.baselines.shared import StackEncoder
from coldhash.recommender.items import CodeItems

CHILD = """
import json, sys, time
from coldhash import load

def private():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024

small, path, verify = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
warm = load(small)
warm.recommend({"age": 30})
warm.recommend(user_ids=[warm.user_ids[7]])
before = private()
start = time.perf_counter()
model = load(path, verify=verify)
took = time.perf_counter() - start
loaded = private()
assert model.item_ids.row_of("777777") == 777776
model.recommend({"age": 30})
model.recommend(user_ids=["77"])
print(json.dumps({"seconds": took, "loaded": loaded - before, "asked": private() - before}))
"""


def catalogue(small: Recommender, n_items: int, n_users: int) -> Recommender:
    """Give a model random codes, and users a hundred random ratings each."""
    rng = np.random.default_rng(0)
    rated = np.sort(rng.integers(n_items, size=(n_users, 100), dtype=np.int32), axis=1).ravel()
    starts = np.arange(0, len(rated) + 1, 100, dtype=np.int32)
    ones = np.ones(len(rated), dtype=np.float32)
    index = small.items
    packed = rng.integers(2**index.n_bits, size=(n_items, 1), dtype=np.uint64)
    popularity = rng.integers(10_000, size=n_items).astype(np.float32)
    levels = np.maximum(255 * np.sqrt(popularity / 10_000), 1).astype(np.uint8)
    tables = (levels, index.gains, index.steps)
    ((group, matrix),) = small.encoder.maps.items()
    return replace(
        small,
        encoder=StackEncoder((group,), matrix),
        items=CodeItems.of(packed, index.n_bits, popularity, *tables),
        item_ids=counted(n_items, "item"),
        popularity=popularity,
        user_ids=counted(n_users, "user"),
        user_vectors=rng.standard_normal((n_users, index.n_bits), dtype=np.float32),
        seen=csr_array((ones, rated, starts), shape=(n_users, n_items)),
        item_table=pa.table({}),
    )


def counted(n: int, kind: str) -> Ids:
    return Ids(pa.array(np.arange(1, n + 1)).cast(pa.string()), kind)


def served(small: Path, path: Path, verify: bool, repeats: int) -> dict[str, float]:
    """Load and ask in a child; gives its megabytes, and the best time of several children."""
    found = []
    for _ in range(repeats):
        command = [sys.executable, "-c", CHILD, str(small), str(path), str(verify)]
        run = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
        found.append(json.loads(run.stdout))
    return {
        "seconds": min(each["seconds"] for each in found),
        "loaded": max(each["loaded"] for each in found),
        "asked": max(each["asked"] for each in found),
    }


def checksum(path: Path) -> None:
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")


def measured(path: Path, small: Path, repeats: int) -> list[Row]:
    size = path.stat().st_size / 1e9
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as other:
        sum(other[at] for at in range(0, len(other), mmap.PAGESIZE))  # the other process
        quick = served(small, path, verify=False, repeats=repeats)
        sure = served(small, path, verify=True, repeats=repeats)
    times = best_times({"ours": lambda: load(path), "peer": lambda: checksum(path)}, 2 * repeats)
    speed, bound = size / times["ours"], size / times["peer"]
    return [
        Row("load, verify=False: ms / 50", quick["seconds"] * 1000, 50, "<= 1"),
        Row("load, verify=False: private MB / 50", quick["loaded"], 50, "<= 1"),
        Row("load, verify=False, and answers: private MB / 50", quick["asked"], 50, "<= 1"),
        Row("load: private MB / 50", sure["loaded"], 50, "<= 1"),
        Row("load and answers: private MB / 50", sure["asked"], 50, "<= 1"),
        Row("load: GB/s / SHA-256 of the file", speed, bound, ">= 0.9"),
    ]


def main() -> None:
    args = options(__doc__ or "")
    n_items, repeats = (1_000_000, 2) if args.quick else (10_000_000, 3)
    with tempfile.TemporaryDirectory() as folder:
        small, path = Path(folder) / "small", Path(folder) / "large"
        model = MFDCF(n_bits=64).fit(read("sample", n_users=200, n_items=120))
        catalogue(model, 12_000, 120).save(small)
        model = catalogue(model, n_items, n_items // 100)
        start = time.perf_counter()
        model.save(path)
        took, n_bytes = time.perf_counter() - start, path.stat().st_size
        print(f"{n_items:,} items: {n_bytes / 1e6:,.0f} MB, {n_bytes / n_items:.1f} bytes an item")
        print(f"saved in {took:.1f} s")
        del model
        rows = measured(path, small, repeats)
    finish(rows, args.out)


if __name__ == "__main__":
    main()
