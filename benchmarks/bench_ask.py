"""What to ask next: accuracy after some questions beside other ways to choose them, and time.

Cold users answer from their ratings; what they have not rated they do not know. Items that were
asked about are neither favourites nor candidates afterwards. All ways to choose questions use the
answers in the same way.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from table import Row, finish, parser

from coldhash import MFDCF, read, split_cold_users
from coldhash.lab.asking import PROTOCOLS, Panel, strategies
from coldhash.recommender.recommender import Recommender

OURS, POPULARITY = "ours", "popularity"
JUDGED = (5, 10)  # questions


def accuracy(folder: Path, name: str, seeds: range) -> Iterator[Row]:
    """Ask the cold users of some splits."""
    found: dict[str, dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    nobody = []
    for seed in seeds:
        train, cold = split_cold_users(read(name, folder), seed=seed, described=True)
        panel = Panel.of(MFDCF().fit(train, seed=seed), train, cold, PROTOCOLS[name])
        nobody.append(panel.judge(np.zeros(panel.ratings.shape, dtype=bool))[0])
        for label, pick in strategies(panel, seed):
            for n, each in panel.ask(pick).items():
                found[label][n].append(each)
    print(f"{name}: nobody asked {np.mean(nobody):.4f}")
    mean: dict[tuple[str, int], float] = {}
    for label, by_n in found.items():
        cells = []
        for n, several in by_n.items():
            mean[label, n], share = np.mean(several, axis=0).tolist()
            cells.append(f"{n}: {mean[label, n]:.4f} ({share:.2f})")
        print(f"  {label:22} {'  '.join(cells)}", flush=True)
    print("  (share of questions about items that are known)")
    for n in JUDGED:
        best = max((label for label in found if label != OURS), key=lambda label: mean[label, n])
        ours = mean[OURS, n]
        yield Row(f"{name}, {n} questions / {best}, the best", ours, mean[best, n], ">= 1")
        yield Row(f"{name}, {n} questions / {POPULARITY}", ours, mean[POPULARITY, n], ">= 1.08")
        yield Row(f"{name}, {n} questions / none", ours, float(np.mean(nobody)), ">= 1")


def seconds(n_items: int, repeats: int) -> float:
    """Time a question to somebody who has answered five."""
    train = read("sample", n_users=500, n_items=n_items)
    model: Recommender = MFDCF().fit(train)
    person: dict[str, object] = {"age": 30}
    person["answers"] = {q["name"]: None for q in model.ask(person, 5, kinds=["items"])}
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        model.ask(person)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--splits", type=int, help="splits of the users; default: 3, quick: 1")
    options.add_argument("--sets", nargs="*", choices=list(PROTOCOLS), default=list(PROTOCOLS))
    args = options.parse_args()
    if args.data is None:
        sys.exit("say where the data sets are: --data FOLDER or COLDHASH_DATA")
    warnings.simplefilter("ignore")
    # methods were chosen on the training part of split 0
    seeds = range(1, 1 + (args.splits or (1 if args.quick else 3)))
    rows = [row for name in args.sets for row in accuracy(args.data, name, seeds)]
    for n_items, most in ((4000, 1), (10_000 if args.quick else 100_000, 10)):
        what = f"milliseconds, {n_items:,} items"
        rows.append(Row(what, 1000 * seconds(n_items, 50), 1.0, f"<= {most}"))
    finish(rows, args.out)


if __name__ == "__main__":
    main()
