"""Wide tables of users, by the command line, and processes forked after a fit.

`coldhash describe` and `coldhash fit` of 100,000 columns (200 users), 20,000 labels (30 of them for
each of 20,000 users) and 3,000 columns of numbers (2,000 users), each in a process of its own:
processor seconds, with the start of Python, and the peak of memory; that of many columns beside
pyarrow, which only reads the table. Then a process that has fitted forks workers, which fit and
answer as it does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from table import Row, finish, options, run_python

N_ITEMS, PER_USER = 100, 10
SECONDS, MEGABYTES = 60.0, 2000.0  # of the processor and of memory, that a command may take
PLAN = '[users.taste]\nlikes = {kind = "multi-label", separator = "|", min_count = 1}\n'
MANY = 10_000  # columns, from which reading them is most of the memory
READ = "import sys, pyarrow.csv; pyarrow.csv.read_csv(sys.argv[1])"
N_FORKED = 8  # tasks in forked processes, every second one a fit
FORK = """
import hashlib, multiprocessing, sys, warnings
from coldhash import MFDCF, read

def fit():
    return MFDCF(n_bits=16, n_rounds=2).fit(read("sample", n_users=300, n_items=100))

def answers(model):
    found = model.recommend([{"age": age} for age in range(10, 90)] * 3, k=10, threads=2)
    return hashlib.sha256(repr((found.item_ids, found.scores.tobytes())).encode()).hexdigest()

def work(n):
    return answers(fit() if n % 2 else model)

warnings.simplefilter("ignore")
model = fit()
expected = answers(model)
with multiprocessing.get_context("fork").Pool(2) as pool:
    found = pool.map_async(work, range(int(sys.argv[1]))).get(600)
print(found.count(expected))
"""


def write_world(folder: Path, n_users: int, users: dict[str, pa.Array]) -> list[object]:
    """Write ratings and users; gives the options that name them."""
    rng = np.random.default_rng(0)
    items = np.argsort(rng.random((n_users, N_ITEMS)), axis=1)[:, :PER_USER].ravel()
    ratings = {
        "user_id": np.repeat(np.arange(n_users), PER_USER),
        "item_id": items,
        "rating": rng.integers(1, 6, len(items)),
    }
    people = {"user_id": pa.array(np.arange(n_users)), **users}
    pa.csv.write_csv(pa.table(ratings), folder / "ratings.csv")
    pa.csv.write_csv(pa.table(people), folder / "users.csv")
    return ["--ratings", folder / "ratings.csv", "--users", folder / "users.csv"]


def columns(n_columns: int) -> tuple[int, dict[str, pa.Array]]:
    """Draw columns of labels for 200 users."""
    drawn = np.random.default_rng(1).integers(8, size=(n_columns, 200))
    names = np.array(list("abcdefgh"))
    return 200, {f"c{n}": pa.array(names[row]) for n, row in enumerate(drawn)}


def labels(n_labels: int) -> tuple[int, dict[str, pa.Array]]:
    """Draw one column, in which everybody has 30 labels."""
    drawn = np.random.default_rng(2).integers(n_labels, size=(n_labels, 30))
    return n_labels, {"likes": pa.array(["|".join(map(str, row)) for row in drawn])}


def numbers(n_columns: int) -> tuple[int, dict[str, pa.Array]]:
    """Draw columns of numbers for 2,000 users."""
    drawn = np.random.default_rng(3).normal(size=(n_columns, 2000)).round(3)
    return 2000, {f"x{n}": pa.array(row) for n, row in enumerate(drawn)}


def measure(what: str, n_users: int, users: dict[str, pa.Array]) -> list[Row]:
    """Describe and fit one table of users."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        world = write_world(folder, n_users, users)
        if "likes" in users:
            (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
            world += ["--plan", folder / "plan.toml"]
        for command, extra in (("describe", []), ("fit", ["--out", folder / "m.coldhash"])):
            cost = run_python("-m", "coldhash", command, *world, *extra)
            case = f"{command}, {what}"
            print(f"{case}: {cost.seconds:.1f} s", flush=True)
            rows.append(Row(f"{case}: processor s / 60", cost.processor_seconds, SECONDS, "<= 1"))
            if len(users) >= MANY:
                peer = run_python("-c", READ, folder / "users.csv").peak / 1e6
                memory = f"{case}: peak MB / pyarrow"
                rows.append(Row(memory, cost.peak / 1e6, peer, "<= 2", "pyarrow"))
            else:
                memory = f"{case}: peak MB / 2,000"
                rows.append(Row(memory, cost.peak / 1e6, MEGABYTES, "<= 1"))
    return rows


def forked(layer: str) -> Row:
    """Count the tasks in forked processes whose answers are those of the process that fitted."""
    run = subprocess.run(
        [sys.executable, "-c", FORK, str(N_FORKED)],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env=os.environ | {"NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": "2"},
    )
    same = 0 if run.returncode else int(run.stdout)
    return Row(f"tasks after a fork, {layer}: the same answers / all", same, N_FORKED, ">= 1")


def main() -> None:
    args = options(__doc__ or "")
    parts = 10 if args.quick else 1
    worlds = {
        f"{100_000 // parts:,} columns": columns(100_000 // parts),
        f"{20_000 // parts:,} labels": labels(20_000 // parts),
        f"{3_000 // parts:,} numbers": numbers(3_000 // parts),
    }
    rows = [row for what, world in worlds.items() for row in measure(what, *world)]
    finish([*rows, *map(forked, ("workqueue", "omp"))], args.out)


if __name__ == "__main__":
    main()
