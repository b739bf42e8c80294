"""Every method on MovieLens-1M, 64 bits, one thread: fit time, peak memory, accuracy for strangers.

Each method is fitted in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from table import Row, finish, options

CASES = {  # label -> (method, settings)
    "mfdcf": ("mfdcf", {}),
    "cbfknn": ("cbfknn", {}),
    "dfm": ("dfm", {}),
    "dfm without item bias": ("dfm", {"use_item_bias": False}),
    "ddl": ("ddl", {}),
    "zsr": ("zsr", {}),
    "lsh": ("lsh", {}),
    "itq+map": ("itq", {}),
    "bccf+map": ("bccf", {}),
    "ch+map": ("ch", {}),
    "pph+map": ("pph", {}),
    "dcf+map": ("dcf", {}),
    "dcmf": ("dcmf", {}),
    "dcmf, rho .5": ("dcmf", {"rho": 0.5}),
    "mf": ("mf", {}),
    "popularity": ("popularity", {}),
    "popularity by cell": ("popularity", {"cell": ["gender", "age"]}),
    "ridge": ("ridge", {}),
}
QUICK = ("mfdcf", "dcf+map", "dcmf", "dcmf, rho .5", "cbfknn", "popularity")
PAPER = {"mfdcf": 1.0, "dfm": 196.45 / 68.41, "ddl": 3372.19 / 68.41}  # its Table 2, 64 bits

CHILD = """
import json, resource, sys, time, warnings
import numba
numba.set_num_threads(1)
warnings.simplefilter("ignore")
from coldhash import MODELS, read, split_cold_users
from coldhash.evaluate.metrics import accuracy_at
from coldhash.evaluate.protocol import make_trial, rank, scorer
method, settings, folder = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
settings = {n: tuple(v) if isinstance(v, list) else v for n, v in settings.items()}
train, cold = split_cold_users(read("ml-1m", folder), seed=0)
warm, _ = split_cold_users(read("sample", n_users=300, n_items=120), seed=0)
try:
    MODELS[method](**{n: v for n, v in settings.items() if n != "cell"}).fit(warm)  # compile
except Exception as error:
    print(error, file=sys.stderr)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
model = MODELS[method](**settings).fit(train, seed=0)
seconds = time.perf_counter() - start
memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
ranks = rank(scorer(model), make_trial(train, cold, seed=0))
print(json.dumps([seconds, memory, accuracy_at(10, ranks.greater, ranks.equal)]))
"""

ALS = """
import json, sys, time
sys.path.insert(0, sys.argv[2])
from rivals import als, as_implicit
from coldhash import read, split_cold_users
train, _ = split_cold_users(read("ml-1m", sys.argv[1]), seed=0)
ratings = as_implicit(train.ratings.matrix)
als(ratings[:500], 64, threads=1)
start = time.perf_counter()
als(ratings, 64, alpha=5.0, threads=1)
print(json.dumps(time.perf_counter() - start))
"""


def child(code: str, *arguments: str) -> object:
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, encoding="utf-8", check=True
    )
    return json.loads(run.stdout.splitlines()[-1])


def show(found: dict[str, list[float]]) -> None:
    """Print every method beside MFDCF and, where its Table 2 has one, the ratio of the paper."""
    base = found["mfdcf"][0]
    print(f"{'method':24} {'fit s':>8} {'x mfdcf':>8} {'paper':>6} {'MB':>7} {'Acc@10':>7}")
    for name, (seconds, memory, accuracy) in found.items():
        paper = f"{PAPER[name]:.1f}" if name in PAPER else ""
        print(
            f"{name:24} {seconds:8.2f} {seconds / base:8.1f} {paper:>6} {memory:7.0f} "
            f"{accuracy:7.4f}"
        )
    print()


def main() -> None:
    args = options(__doc__ or "", needs_data=True)
    found: dict[str, list[float]] = {}
    for name in QUICK if args.quick else CASES:
        method, settings = CASES[name]
        print(name, file=sys.stderr)
        found[name] = child(CHILD, method, json.dumps(settings), str(args.data))  # type: ignore[assignment]
    als_seconds = float(child(ALS, str(args.data), str(Path(__file__).parent)))  # type: ignore[arg-type]
    show(found)
    what = "DCF, 3 sweeps x 10 rounds / implicit ALS"
    rows = [Row(what, found["dcf+map"][0], als_seconds, "<= 3", "implicit")]
    rows += [
        Row(f"{name}: seconds / 60", found[name][0], 60.0, "<= 1")
        for name in ("ddl", "dfm")
        if name in found
    ]
    for ours, peer, target in (
        ("zsr", "popularity", ">= 1"),
        ("cbfknn", "popularity", ">= 1"),
        ("dcmf, rho .5", "dcmf", ">= 1.5"),
        ("dfm", "dfm without item bias", ">= 1.5"),
    ):
        if ours in found and peer in found:
            rows.append(
                Row(f"Accuracy@10, {ours} / {peer}", found[ours][2], found[peer][2], target)
            )
    finish(rows, args.out)


if __name__ == "__main__":
    main()
