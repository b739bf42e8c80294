"""New items: levels and codes from content and first ratings, beside content kNN, ridge and others.

A tenth of the items is held out with all ratings; the favourites of training users among them are
ranked among all new items, and among new and other items. Everything that is chosen, of ours and of
the peers, is chosen on the other items.
"""

from __future__ import annotations

import sys
import time
import zipfile
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from table import Row, finish, parser

from coldhash import MFDCF, Dataset, FeaturePlan, read, split_cold_items
from coldhash.baselines.shared import favourite_matrix
from coldhash.data.plan import Text
from coldhash.features.fitting import fit_content
from coldhash.lab.cold_items import choose_peers, item_accuracy_at, model_scores
from coldhash.recommender.recommender import Recommender
from coldhash.update import add_items

FIRST = (1, 5, 20)  # ratings that a new item may have got
MAX_USERS = 1000  # who are asked for their favourites among new items
MAX_OTHERS = 4000  # items that compete with new ones
BITS = 64
MORE_BITS = {  # with which models are judged, too: user vectors of 56 numbers hold too little
    "ml-1m": None,
    "book-crossing": 512,
    "citeulike-t": 1024,
    "complete-journey": 1024,
}


def read_citeulike(folder: Path) -> Dataset:
    """Read the libraries of 7,947 users: articles as bags of words; nothing is known of users."""
    with zipfile.ZipFile(folder / "citeulike-t.zip") as archive:
        users, bags = (
            archive.read(f"citeulike-t/{name}.dat").decode("latin-1").splitlines()
            for name in ("users", "mult")
        )
    libraries = [line.split()[1:] for line in users]
    texts = []
    for line in bags:
        counts = (pair.split(":") for pair in line.split()[1:])
        texts.append(" ".join(" ".join([f"w{word}"] * int(count)) for word, count in counts))
    owners = np.repeat(np.arange(len(libraries)), [len(library) for library in libraries])
    return Dataset.from_tables(
        {"user_id": owners, "item_id": [item for library in libraries for item in library]},
        None,
        {"item_id": [str(row) for row in range(len(texts))], "text": texts},
        plan=FeaturePlan(items={"content": {"text": Text()}}),
        name="citeulike-t",
    )


def table_of(cold: Dataset) -> dict[str, list[object]]:
    columns = {name: cold.items.column(name).to_pylist() for name in cold.items.column_names}
    return {"item_id": list(cold.ratings.items), **columns}


def first_ratings(cold: Dataset, n: int, seed: int) -> tuple[Dataset, Dataset]:
    """Split the ratings of each item: the first n by time, or n by chance, and the rest."""
    ratings = cold.ratings
    chance = np.random.default_rng(seed).random(len(ratings))
    when = chance if ratings.times is None else ratings.times
    order = np.lexsort((chance, when, ratings.matrix.indices))
    ends = np.cumsum(ratings.per_item)
    place = np.empty(len(ratings), dtype=np.int64)
    place[order] = np.arange(len(ratings)) - np.repeat(ends - ratings.per_item, ratings.per_item)
    given, rest = ratings.where(place < n), ratings.where(place >= n)
    return cold.with_ratings(given), cold.with_ratings(rest)


def rating_table(data: Dataset) -> dict[str, object]:
    matrix = data.ratings.matrix
    owners = np.repeat(np.arange(matrix.shape[0]), data.ratings.per_user)
    users, items = np.array(list(data.ratings.users)), np.array(list(data.ratings.items))
    table = {"user_id": users[owners], "item_id": items[matrix.indices]}
    return table if data.feedback.kind != "ratings" else table | {"rating": matrix.data}


def one_split(data: Dataset, seed: int, n_bits: int, more_bits: int | None) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    train, cold = split_cold_items(data, 0.1, seed)
    begin = time.process_time()
    model = MFDCF(n_bits=n_bits).fit(train, seed=seed)
    fitted = time.process_time()
    more, _ = add_items(model, table_of(cold))
    added = time.process_time()
    judges = np.flatnonzero(np.diff(favourite_matrix(cold).indptr))
    judges = np.sort(rng.permutation(judges)[:MAX_USERS])
    rivals = np.sort(rng.permutation(len(train.ratings.items))[:MAX_OTHERS])
    known, new = train.of_users(judges), cold.of_users(judges)
    users, items = list(new.ratings.users), list(new.ratings.items)
    rated = known.ratings.matrix
    ones = np.ones(len(rated.indices), np.int8)  # a rating may be 0
    seen = (
        csr_array((ones, rated.indices, rated.indptr), shape=rated.shape)[:, rivals].toarray() > 0
    )
    ids = [train.ratings.items[row] for row in rivals]

    def judge(model: Recommender, name: str) -> dict[str, float]:
        others = np.where(seen, -np.inf, model_scores(model, users, ids))
        scores = model_scores(model, users, items)
        return {
            f"{name}, among new": item_accuracy_at(10, scores, new),
            f"{name}, among all": item_accuracy_at(10, scores, new, others),
            f"{name}, bytes an item": model.items.bytes_per_item,
        }

    ours = model_scores(more, users, items)
    found = judge(more, "ours") | {
        "ours by codes, among new": item_accuracy_at(
            10, model_scores(more, users, items, by_code=True), new
        ),
        "seconds to fit": fitted - begin,
        "seconds to add": added - fitted,
    }
    if more_bits is not None:
        longer, _ = add_items(MFDCF(n_bits=more_bits).fit(train, seed=seed), table_of(cold))
        found |= judge(longer, f"{more_bits} bits")
    encoder = fit_content(train.plan, train.items)
    content = encoder.apply(train.items, len(train.ratings.items))
    wanted = encoder.apply(cold.items, len(items))
    liked = favourite_matrix(known)
    peers = choose_peers(known, seed)
    for name, peer in peers.items():
        scores = peer(liked, content, wanted)
        rest = np.where(seen, -np.inf, peer(liked, content, content[rivals]))
        found[f"{name}, among new"] = item_accuracy_at(10, scores, new)
        found[f"{name}, among all"] = item_accuracy_at(10, scores, new, rest)
        print(f"  split {seed}: {name}: {peer}", file=sys.stderr)
    for n in FIRST:
        given, rest = first_ratings(cold, n, seed)
        rated, _ = add_items(model, table_of(cold), rating_table(given))
        left = rest.of_users(judges)  # the same test for both: what was not given
        after = model_scores(rated, users, items)
        found[f"{n} first ratings"] = item_accuracy_at(10, after, left)
        found[f"{n}, but content alone"] = item_accuracy_at(10, ours, left)
    return found


def main() -> None:
    known = parser(__doc__ or "")
    known.add_argument("--only", choices=MORE_BITS, nargs="+", help="some of the data sets")
    known.add_argument("--splits", type=int, nargs="+", help="some of the splits")
    args = known.parse_args()
    if args.data is None:
        sys.exit("say where the data sets are: --data FOLDER or COLDHASH_DATA")
    seeds = args.splits or range(1, 2 if args.quick else 4)  # rules were compared on split 0
    rows = []
    for name in args.only or MORE_BITS:
        data = read_citeulike(args.data) if name == "citeulike-t" else read(name, args.data)
        data = data.of_items(np.flatnonzero(data.ratings.per_item))
        found = [one_split(data, seed, BITS, MORE_BITS[name]) for seed in seeds]
        print(f"{name}: Accuracy@10 by split, and its mean")
        mean = {what: float(np.mean([each[what] for each in found])) for what in found[0]}
        for what in mean:
            values = "  ".join(f"{each[what]:.4f}" for each in found)
            print(f"  {what:32} {values}   {mean[what]:.4f}", flush=True)
        for among in ("new", "all"):
            best = max(
                mean[f"{peer}, among {among}"]
                for peer in ("content kNN", "ridge on content", "popularity of category")
            )
            what = f"{name}: among {among} items / best of the peers"
            rows.append(Row(what, mean[f"ours, among {among}"], best, ">= 1"))
            if MORE_BITS[name] is not None:
                of_more = mean[f"{MORE_BITS[name]} bits, among {among}"]
                rows.append(Row(f"{what}, {MORE_BITS[name]} bits", of_more, best, ">= 1"))
        for n in FIRST:
            pair = mean[f"{n} first ratings"], mean[f"{n}, but content alone"]
            rows.append(Row(f"{name}: {n} first ratings / content alone", *pair, ">= 1"))
    finish(rows, args.out)


if __name__ == "__main__":
    main()
