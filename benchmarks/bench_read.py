"""Reading and start-up, beside pandas, pyarrow and numpy."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.csv
import pyarrow.parquet
from scipy.sparse import csr_array
from table import Row, best_times, finish, options

from coldhash import Dataset, read


def reading_ml_1m(data: Path, repeats: int) -> Row:
    archive = data / "ml-1m.zip"
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(archive) as opened:
            unpacked = opened.extract("ml-1m/ratings.dat", folder)
        times = best_times(
            {
                "ours": lambda: read("ml-1m", archive),
                "peer": lambda: pd.read_csv(unpacked, sep="::", engine="python", header=None),
            },
            repeats,
        )
    what = "read ml-1m.zip / pandas python engine"
    return Row(what, times["ours"], times["peer"], "<= 0.125", "pandas")


def reading_csv(n_ratings: int, repeats: int) -> list[Row]:
    """Measure time in this process, and memory in a child that does nothing else."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.csv"
        user = np.repeat(np.arange(n_ratings // 100), 100)
        item = rng.permutation(1000)[:100] * 100 + rng.integers(100, size=(len(user) // 100, 100))
        table = {"user_id": user, "item_id": item.ravel(), "rating": rng.integers(1, 6, len(user))}
        pyarrow.csv.write_csv(pyarrow.table(table), path)

        def peer() -> csr_array:
            columns = pyarrow.csv.read_csv(path)
            users, items, values = (column.to_numpy() for column in columns.columns)
            return csr_array((values, (users, items)))

        times = best_times({"ours": lambda: Dataset.from_tables(path), "peer": peer}, repeats)
        child = (
            "import resource, sys; from coldhash import Dataset; Dataset.from_tables(sys.argv[1]);"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        run = subprocess.run(
            [sys.executable, "-c", child, str(path)],
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
    megabytes = int(run.stdout) / 1024
    what = f"read a CSV of {n_ratings:,} ratings"
    return [
        Row(f"{what} / pyarrow + CSR", times["ours"], times["peer"], "<= 2", "pyarrow"),
        Row(f"{what}: peak MB / 2,000", megabytes, 2000.0, "<= 1"),
    ]


def reading_folder(n_events: int, repeats: int) -> Row:
    """Measure a folder of 100 Parquet files beside one file with the same rows."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        one, many = Path(folder, "one.parquet"), Path(folder, "many")
        many.mkdir()
        user = np.sort(rng.integers(n_events // 100, size=n_events))
        table = pyarrow.table({"user_id": user, "item_id": rng.integers(100_000, size=n_events)})
        pyarrow.parquet.write_table(table, one)
        for at in range(100):
            part = table.slice(at * n_events // 100, n_events // 100)
            pyarrow.parquet.write_table(part, many / f"part-{at:03}.parquet")
        times = best_times(
            {"many": lambda: Dataset.from_tables(many), "one": lambda: Dataset.from_tables(one)},
            repeats,
        )
    what = f"read {n_events:,} events in 100 Parquet files / in one"
    return Row(what, times["many"], times["one"], "<= 1.2", "one file")


def starting(repeats: int) -> list[Row]:
    def child(*arguments: str) -> None:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    times = best_times(
        {
            "numpy": lambda: child("-c", "import numpy"),
            "package": lambda: child("-c", "import coldhash"),
            "help": lambda: child("-m", "coldhash", "--help"),
        },
        repeats,
    )
    return [
        Row("import coldhash / import numpy", times["package"], times["numpy"], "<= 1.3", "numpy"),
        Row("coldhash --help / import numpy", times["help"], times["numpy"], "<= 2", "numpy"),
    ]


def main() -> None:
    args = options(__doc__ or "")
    repeats = 2 if args.quick else 5
    rows = starting(repeats * 2)
    rows += reading_csv(1_000_000 if args.quick else 10_000_000, repeats)
    rows.append(reading_folder(1_000_000 if args.quick else 10_000_000, repeats))
    if args.data is not None:
        rows.append(reading_ml_1m(args.data, repeats))
    finish(rows, args.out)


if __name__ == "__main__":
    main()
