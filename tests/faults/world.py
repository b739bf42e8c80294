"""Tables, a plan and models as files, and what commands make of them, without times."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from coldhash import load, read
from coldhash.cli import app
from coldhash.lab.runner import read_runs
from coldhash.recommender import model_file

SECONDS = re.compile("seconds|fit_parts")  # what differs from run to run
PLAN = """
name = "try"
datasets = ["sample"]
splits = 2
protocols = ["sampled-1000"]

[[models]]
model = "popularity"

[[models]]
model = "ridge"
"""

Result = dict[str, Any]


def command(*arguments: object) -> None:
    app([str(each) for each in arguments], standalone_mode=False)


def make_world(folder: Path) -> None:
    """Write ratings and users of the sample, a model of old, and two models to save."""
    world = read("sample", n_users=300, n_items=120)
    ratings = world.ratings
    owners = np.repeat(np.arange(300), ratings.per_user)
    table = {
        "user_id": ratings.users.values.take(owners),
        "item_id": ratings.items.values.take(ratings.matrix.indices),
        "rating": ratings.matrix.data,
    }
    pa.csv.write_csv(pa.table(table), folder / "r.csv")
    users = world.users.append_column("user_id", ratings.users.values)
    pa.csv.write_csv(users, folder / "u.csv")
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    command(*fit_of(folder), "--seed", 9, "--out", folder / "old")
    for name in ("one", "two"):  # large enough for a kill to fall into the writing
        replace(load(folder / "old"), report={"filling": name * 300_000}).save(folder / name)


def fit_of(world: Path) -> list[object]:
    return ["fit", "--ratings", world / "r.csv", "--users", world / "u.csv", "--bits", 16]


def model_facts(path: Path) -> Result:
    """Give all that a model file holds, without times."""
    facts, tensors = model_file.read(path)
    return {"facts": timeless(facts)} | {name: each.tobytes() for name, each in tensors.items()}


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {n: timeless(v) for n, v in value.items() if not SECONDS.search(n)}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def experiment_facts(folder: Path) -> Result:
    """Return what the experiment of the plan left in a folder, without times."""
    files = sorted((folder / "out" / "try" / "runs").glob("*.parquet"))
    runs = [timeless(row | {"users_file": row["users_file"].name}) for row in read_runs(files)]
    users = {path.name: pq.read_table(path).to_pylist() for path in files}
    table = pq.read_table(folder / "out" / "try" / "results.parquet")
    rows = timeless(table.to_pylist())
    return {"runs": runs, "rows": rows, **users}
