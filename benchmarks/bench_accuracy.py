"""Accuracy@10 for strangers beside the controls and the rivals, 5 cold-user splits, seeds 0..4."""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
from rivals import (
    IRSPACK,
    People,
    als,
    by_feature_weights,
    by_rows,
    favourites,
    irspack_ials,
    weighted,
)
from table import Row, finish, options

from coldhash import Dataset, read, split_cold_users
from coldhash.baselines.controls import Popularity, Ridge
from coldhash.errors import CodeCollapse
from coldhash.evaluate.metrics import accuracy_at
from coldhash.evaluate.protocol import Trial, make_trial, rank, scorer
from coldhash.mfdcf.model import MFDCF


class Scores:
    """Accuracy of each scorer at each k, averaged over splits."""

    def __init__(self) -> None:
        self.values: dict[str, list[dict[int, float]]] = defaultdict(list)

    def add(self, name: str, trial: Trial, score: object) -> None:
        ranks = rank(score, trial)
        self.values[name].append(
            {k: accuracy_at(k, ranks.greater, ranks.equal) for k in (5, 10, 20, 50)}
        )

    def mean(self, name: str, k: int = 10) -> float:
        return float(np.mean([value[k] for value in self.values[name]]))

    def row(
        self, what: str, ours: str, peers: list[str], target: str, against: str = "", k: int = 10
    ) -> Row:
        best = max(self.mean(peer, k) for peer in peers)
        return Row(what, self.mean(ours, k), best, target, against)


def strangers(scores: Scores, train: Dataset, cold: Dataset, seed: int) -> None:
    trial = make_trial(train, cold, seed=seed)
    people, highest = People(train, cold), train.ratings.scale[1]
    scores.add("popularity", trial, scorer(Popularity().fit(train)))
    scores.add("ridge", trial, scorer(Ridge(ridge=100.0).fit(train)))
    for name, pick in (("favourites", favourites), ("weighted", weighted)):
        matrix = pick(train.ratings.matrix, highest)
        scores.add(f"als8 int8 {name}", trial, by_rows(people.mapped(als(matrix, 8), int8=True)))
        scores.add(f"als16 {name}", trial, by_rows(people.mapped(als(matrix, 16))))
    for level, lengths in ((True, (16, 32, 64, 128)), (False, (8, 16, 64))):
        for n_bits in lengths:
            model = MFDCF(n_bits=n_bits, level=level).fit(train)
            name = f"{n_bits}" if level else f"{n_bits} no level"
            scores.add(f"real {name}", trial, scorer(model))
            scores.add(f"hamming {name}", trial, scorer(model, "hamming"))


def with_history(scores: Scores, train: Dataset, cold: Dataset, seed: int) -> None:
    people, highest = People(train, cold), train.ratings.scale[1]
    scored = scorer(MFDCF().fit(train))
    refolded = {
        "als16": (weighted, als(weighted(train.ratings.matrix, highest), 16)),
        "als64": (favourites, als(favourites(train.ratings.matrix, highest), 64)),
    }
    rivals = [(setting[0], irspack_ials(train, people, *setting)) for setting in IRSPACK]
    rows = np.arange(len(people.cold))
    for n_given in (0, 1, 5, 20):
        trial = make_trial(train, cold, n_given=n_given, order="random", seed=seed)
        given = trial.history
        if given is None:
            given = cold.ratings.where(np.zeros(len(cold.ratings), dtype=bool)).matrix
        scores.add(f"ours {n_given}", trial, scored)
        scores.add(f"ours zero {n_given}", trial, lambda people, _: scored(people, None))
        for name, (pick, fitted) in refolded.items():
            if n_given:
                factors = fitted.recalculate_user(rows, pick(given, highest))
                scores.add(f"{name} {n_given}", trial, by_rows(factors @ fitted.item_factors.T))
        for number, (pick, rival) in enumerate(rivals):
            found = rival.get_score_cold_user(pick(given, highest), user_features=people.cold)
            scores.add(f"irspack {number} {n_given}", trial, by_rows(found.astype(np.float32)))
            if not n_given:
                alone = by_feature_weights(rival, people.cold)
                scores.add(f"weights {number}", trial, by_rows(alone))


def movielens(folder: Path, seeds: range) -> list[Row]:
    data = read("ml-1m", folder)
    cold, history = Scores(), Scores()
    for seed in seeds:
        print(f"ml-1m, split {seed}", file=sys.stderr)
        parts = split_cold_users(data, seed=seed)
        strangers(cold, *parts, seed)
        with_history(history, *parts, seed)
    irspack = [f"irspack {number}" for number in range(len(IRSPACK))]
    int8, float16 = ([f"{name} favourites", f"{name} weighted"] for name in ("als8 int8", "als16"))
    return [
        cold.row("64 bits / ridge", "real 64", ["ridge"], ">= 0.997"),
        cold.row("32 bits / ridge", "real 32", ["ridge"], ">= 0.993"),
        cold.row("16 bits / ridge", "real 16", ["ridge"], ">= 0.985"),
        cold.row("64 bits, Hamming / ridge", "hamming 64", ["ridge"], ">= 0.975"),
        cold.row("64 bits, Hamming / ridge @50", "hamming 64", ["ridge"], ">= 0.985", k=50),
        cold.row("64 bits without level / ridge", "real 64 no level", ["ridge"], ">= 1"),
        cold.row("16 bits without level / ridge", "real 16 no level", ["ridge"], ">= 0.965"),
        cold.row("8 bits without level / popularity", "real 8 no level", ["popularity"], ">= 1.03"),
        cold.row(
            "64 bits without level, Hamming / popularity",
            "hamming 64 no level",
            ["popularity"],
            ">= 1.06",
        ),
        cold.row("64 bits / 8 int8 ALS factors + map", "real 64", int8, ">= 1", "implicit"),
        cold.row(
            "64 bits / 16 float ALS factors + map", "real 64", float16, ">= 0.995", "implicit"
        ),
        cold.row("128 bits, Hamming / ridge", "hamming 128", ["ridge"], ">= 0.98"),
        cold.row("64 bits, Hamming / popularity", "hamming 64", ["popularity"], ">= 1.06"),
        cold.row(
            "64 bits, Hamming / popularity @50", "hamming 64", ["popularity"], ">= 1.04", k=50
        ),
        *[
            Row(f"{n} ratings given at random, Accuracy@10", history.mean(f"ours {n}"), 1.0, target)
            for n, target in ((5, ">= 0.28"), (20, ">= 0.318"))
        ],
        *[
            history.row(f"{n} ratings given / none", f"ours {n}", [f"ours zero {n}"], target)
            for n, target in ((1, ">= 1.05"), (5, ">= 1.16"), (20, ">= 1.35"))
        ],
        *[
            history.row(
                f"{n} ratings given / ALS recalculate_user",
                f"ours {n}",
                [f"als16 {n}", f"als64 {n}"],
                ">= 1",
                "implicit",
            )
            for n in (1, 5, 20)
        ],
        *[
            history.row(
                f"{n} ratings given / irspack iALS with features",
                f"ours {n}",
                [f"{name} {n}" for name in irspack],
                target,
                "irspack",
            )
            for n, target in ((0, ">= 1.02"), (5, ">= 1.05"), (20, ">= 1.02"))
        ],
        history.row(
            "0 ratings given / irspack iALS, its feature weights alone",
            "ours 0",
            [f"weights {number}" for number in range(len(IRSPACK))],
            ">= 1.02",
            "irspack",
        ),
    ]


def book_crossing(folder: Path, seeds: range) -> list[Row]:
    data = read("book-crossing", folder)
    scores = Scores()
    for seed in seeds:
        print(f"book-crossing, split {seed}", file=sys.stderr)
        train, cold = split_cold_users(data, seed=seed)
        trial = make_trial(train, cold, seed=seed)
        scores.add("popularity", trial, scorer(Popularity().fit(train)))
        scores.add("real 64", trial, scorer(MFDCF().fit(train)))
    return [
        scores.row(
            f"Book-Crossing, 64 bits / popularity @{k}", "real 64", ["popularity"], ">= 1.01", k=k
        )
        for k in (5, 10, 20, 50)
    ]


def main() -> None:
    args = options(__doc__ or "", needs_data=True)
    warnings.simplefilter("ignore", CodeCollapse)
    seeds = range(1 if args.quick else 5)
    finish(movielens(args.data, seeds) + book_crossing(args.data, seeds), args.out)


if __name__ == "__main__":
    main()
