"""Cold items: codes of items that nobody has rated, from content, beside content kNN and chance.

A fifth of the items is held out with all ratings; favourites of the training users among them are
ranked against the other cold items. kNN (how many neighbours, which ones, how weighed) is chosen on
a fifth of the training items; ours chooses its ridge by leave-one-out error within the fit.
"""

from __future__ import annotations

import sys

import numpy as np
from table import Row, finish, options

from coldhash import MFDCF, Dataset, read, split_cold_items
from coldhash.lab.cold_items import (
    choose_neighbours,
    item_accuracy_at,
    make_item_trial,
    model_scores,
)
from coldhash.update import add_items

FIRST = (1, 5, 20)  # ratings that a cold item may have got


def table_of(cold: Dataset) -> dict[str, list[object]]:
    columns = {name: cold.items.column(name).to_pylist() for name in cold.items.column_names}
    return {"item_id": list(cold.ratings.items), **columns}


def first_ratings(cold: Dataset, n: int, seed: int) -> tuple[Dataset, Dataset]:
    """Split the ratings of each item: n by chance, and the rest."""
    ratings = cold.ratings
    chance = np.random.default_rng(seed).random(len(ratings))
    order = np.lexsort((chance, ratings.matrix.indices))
    ends = np.cumsum(ratings.per_item)
    place = np.empty(len(ratings), dtype=np.int64)
    place[order] = np.arange(len(ratings)) - np.repeat(ends - ratings.per_item, ratings.per_item)
    given, rest = ratings.where(place < n), ratings.where(place >= n)
    return cold.with_ratings(given), cold.with_ratings(rest)


def rating_table(data: Dataset) -> dict[str, object]:
    matrix = data.ratings.matrix
    owners = np.repeat(np.arange(matrix.shape[0]), data.ratings.per_user)
    users, items = np.array(list(data.ratings.users)), np.array(list(data.ratings.items))
    return {"user_id": users[owners], "item_id": items[matrix.indices], "rating": matrix.data}


def one_split(data: Dataset, seed: int) -> dict[str, float]:
    train, cold = split_cold_items(data, 0.2, seed)
    trial = make_item_trial(cold, seed=seed)
    model = MFDCF(n_bits=64, new_items=True).fit(train, seed=seed)
    more, _ = add_items(model, table_of(cold))
    neighbours = choose_neighbours(train, seed)
    print(f"  split {seed}: {neighbours}", file=sys.stderr)
    nothing = np.zeros(trial.favourites.shape, dtype=np.float32)
    found = {
        "codes from content": item_accuracy_at(10, model_scores(more, cold), trial),
        "both sides codes": item_accuracy_at(10, model_scores(more, cold, by_code=True), trial),
        "content kNN": item_accuracy_at(10, neighbours.scores(train, cold), trial),
        "chance": item_accuracy_at(10, nothing, trial),
    }
    for n in FIRST:
        given, rest = first_ratings(cold, n, seed)
        rated, _ = add_items(model, table_of(cold), rating_table(given))
        left = make_item_trial(rest, seed=seed)  # the same test for both: what was not given
        found[f"{n} first ratings each"] = item_accuracy_at(10, model_scores(rated, rest), left)
        found[f"{n}, but content alone"] = item_accuracy_at(10, model_scores(more, rest), left)
    return found


def main() -> None:
    args = options(__doc__ or "", needs_data=True)
    rows = []
    for name in ("ml-1m", "book-crossing"):
        data = read(name, args.data)
        found = [one_split(data, seed) for seed in range(1 if args.quick else 3)]
        print(f"{name}: Accuracy@10 by split, and its mean")
        for what in found[0]:
            values = [each[what] for each in found]
            print(f"  {what:24} {'  '.join(f'{v:.4f}' for v in values)}   {np.mean(values):.4f}")
        ours, peer = (
            float(np.mean([each[what] for each in found]))
            for what in ("codes from content", "content kNN")
        )
        rows.append(Row(f"{name}: codes from content / content kNN", ours, peer, ">= 1"))
    finish(rows, args.out)


if __name__ == "__main__":
    main()
