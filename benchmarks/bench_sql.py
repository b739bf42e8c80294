"""SQL by bit planes: accuracy on MovieLens-1M, DuckDB at a million items; and filters of items.

The planes of the cold users of two splits are ranked by the library, which DuckDB, SQLite and
PostgreSQL equal (tests/recommender/test_export.py). The items that a filter allows are a random
hundredth of the catalogue.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from bench_store import catalogue
from table import Row, finish, options

from coldhash import MFDCF, Recommender, read, split_cold_users
from coldhash.evaluate.metrics import accuracy_at
from coldhash.evaluate.protocol import ScoreFunction, make_trial, rank, scorer
from coldhash.recommender.export import Planes, export, query_sql

N_ITEMS = 1_000_000
PEOPLE = [
    {"age": age, "gender": gender} for age in (20, 30, 40, 60) for gender in ("male", "female")
]


def by_planes(model: Recommender, n_planes: int) -> ScoreFunction:
    """Score people by their vectors as bit planes."""

    def score(people, history):
        encoded = model.encode(people, history, unknown="ignore")
        every = [Planes.of(vector, n_planes) for vector in encoded.vectors]
        vectors = [each.scale * (2.0 ** np.arange(n_planes) @ each.bits) for each in every]
        return model.score(replace(encoded, vectors=np.array(vectors, np.float32)))

    return score


def accuracy(args) -> list[Row]:
    data = read("sample") if args.data is None else read("ml-1m", args.data)
    found: dict[tuple[int, int], list[float]] = {}
    for seed in range(1 if args.quick else 2):
        train, cold = split_cold_users(data, seed=seed)
        model = MFDCF().fit(train)
        for n_given in (0, 20):
            trial = make_trial(train, cold, n_given=n_given, seed=seed)
            for n_planes in (0, 2, 3, 4):
                score = by_planes(model, n_planes) if n_planes else scorer(model)
                ranks = rank(score, trial)
                hits = accuracy_at(10, ranks.greater, ranks.equal)
                found.setdefault((n_given, n_planes), []).append(hits)
    means = {key: float(np.mean(values)) for key, values in found.items()}
    return [
        Row(
            f"Accuracy@10, {n_planes} planes / real query, {n_given} given",
            means[n_given, n_planes],
            means[n_given, 0],
            {2: ">= 0.9", 3: ">= 0.97", 4: ">= 0.99"}[n_planes],
        )
        for n_given in (0, 20)
        for n_planes in (2, 3, 4)
    ]


def median_ms(ask: Callable[[dict], object], repeats: int) -> float:
    times = []
    for turn in range(repeats + 1):
        for person in PEOPLE:
            start = time.perf_counter()
            ask(person)
            times.extend([time.perf_counter() - start] if turn else [])
    return float(np.median(times) * 1000)


def large(repeats: int) -> list[Row]:
    """Measure a catalogue of random codes: SQL, and filters beside no filter."""
    import duckdb

    model = catalogue(MFDCF(n_bits=64).fit(read("sample", n_users=200, n_items=120)), N_ITEMS, 1000)
    rng = np.random.default_rng(0)
    columns = {"shop": rng.integers(100, size=N_ITEMS), "in_stock": rng.random(N_ITEMS) < 0.9}
    model = replace(model, item_table=pa.table(columns))
    all_ms = median_ms(lambda person: model.recommend(person, threads=1), repeats)
    rows = []
    for what, where in (("1%", {"shop": 7}), ("90%", {"in_stock": True})):
        ms = median_ms(lambda person, w=where: model.recommend(person, where=w, threads=1), repeats)
        rows.append(
            Row(f"filter, 1 million items, {what} match, ms / no filter", ms, all_ms, "<= 1.5")
        )
    with tempfile.TemporaryDirectory() as folder:
        path = export(model, "duckdb", Path(folder) / "items.duckdb")
        with duckdb.connect(str(path), read_only=True) as connection:
            for n_planes in (2, 4):
                queries = {
                    str(person): query_sql(model, "duckdb", person, planes=n_planes)
                    for person in PEOPLE
                }
                ms = median_ms(
                    lambda person, q=queries: connection.execute(q[str(person)]).fetchall(), repeats
                )
                rows.append(
                    Row(f"DuckDB, 1 million items, {n_planes} planes, ms / 100", ms, 100, "<= 1")
                )
    return rows


def main() -> None:
    args = options(__doc__ or "")
    finish([*accuracy(args), *large(5 if args.quick else 15)], args.out)


if __name__ == "__main__":
    main()
