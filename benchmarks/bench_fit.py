"""Fitting time beside implicit and irspack, how it grows, the same codes everywhere, evaluation."""

from __future__ import annotations

import sys

import numba
import numpy as np
from rivals import IRSPACK, People, als, as_implicit, irspack_ials
from scipy.sparse import csr_array
from table import Row, best_times, exponent, finish, options

from coldhash import Dataset, read, split_cold_users
from coldhash.arrays.products import times, times_codes
from coldhash.evaluate.protocol import make_trial, rank
from coldhash.mfdcf.model import MFDCF


def beside_peers(train: Dataset, cold: Dataset, repeats: int) -> list[Row]:
    """Time fits in turns; irspack at the setting of the peers' table."""
    ratings, people = as_implicit(train.ratings.matrix), People(train, cold)
    fits = {
        "64 bits": lambda: MFDCF(n_bits=64).fit(train),
        "32 bits": lambda: MFDCF(n_bits=32).fit(train),
        "implicit": lambda: als(ratings, 64, alpha=5.0),
        "irspack": lambda: irspack_ials(train, people, *IRSPACK[0]),
    }
    best_times(fits, 1)  # compile
    best = best_times(fits, repeats)
    implicit, irspack = best["implicit"], best["irspack"]
    return [
        Row(
            "fit, 64 bits / implicit ALS, 64 x 15", best["64 bits"], implicit, "<= 0.15", "implicit"
        ),
        Row(
            "fit, 32 bits / implicit ALS, 64 x 15", best["32 bits"], implicit, "<= 0.1", "implicit"
        ),
        Row("fit, 64 bits / irspack iALS, 64 x 12", best["64 bits"], irspack, "<= 0.5", "irspack"),
    ]


def beside_bandwidth(train: Dataset, repeats: int) -> list[Row]:
    """Compare sparse products with the time that their bytes take to come from memory.

    An entry is an index and a value, 8 bytes, read once; codes and vectors come from the cache. The
    bandwidth is that of adding up an array which no cache holds, on one thread, like the products.
    """
    rng, ratings = np.random.default_rng(0), train.ratings.matrix
    indices, indptr = ratings.indices.astype(np.int32), ratings.indptr.astype(np.int32)
    by_user = csr_array((ratings.data, indices, indptr), shape=ratings.shape)
    by_item = csr_array(by_user.T.tocsr())
    words = rng.integers(0, 2**63, size=(ratings.shape[1], 1)).astype(np.uint64)
    weights = rng.random(ratings.shape[1], dtype=np.float32)
    vectors = rng.random((ratings.shape[0], 56), dtype=np.float32)
    large = np.ones(1 << 26, dtype=np.float32)
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    best = best_times(
        {
            "memory": large.sum,
            "codes": lambda: times_codes(by_user, words, weights, 56),
            "vectors": lambda: times(by_item, vectors),
        },
        3 * repeats,
    )
    numba.set_num_threads(threads)
    limit = 8 * ratings.nnz / (large.nbytes / best["memory"])
    return [
        Row("S D with packed codes / its bytes over the bandwidth", best["codes"], limit, "<= 12"),
        Row("S'H / its bytes over the bandwidth", best["vectors"], limit, "<= 12"),
    ]


def round_seconds(settings: MFDCF, data: Dataset, repeats: int) -> float:
    """Time the steps of one round, without preparation."""
    steps = ("users", "items", "objective")
    reports = [settings.fit(data).report for _ in range(repeats)]
    return min(
        sum(report["seconds"][step] for step in steps) / len(report["objective"])
        for report in reports
    )


def growth(repeats: int, quick: bool) -> list[Row]:
    """Grow users, items and ratings together 16-fold, and bits 16-fold."""
    factors = (1, 4) if quick else (1, 2, 4, 8, 16)
    fixed = MFDCF(n_bits=32, ridge=30.0, n_rounds=4, tolerance=0.0)
    worlds = {f: read("sample", n_users=4000 * f, n_items=1000 * f) for f in factors}
    ratings = [float(len(world.ratings)) for world in worlds.values()]
    seconds = [round_seconds(fixed, world, repeats) for world in worlds.values()]
    bits = [16.0, 64.0] if quick else [16.0, 32.0, 64.0, 128.0, 256.0]
    by_bits = [
        round_seconds(
            MFDCF(n_bits=int(n), ridge=30.0, n_rounds=4, tolerance=0.0), worlds[4], repeats
        )
        for n in bits
    ]
    return [
        Row("exponent of a round's time, by data size", exponent(ratings, seconds), 1.0, "<= 1.1"),
        Row("exponent of a round's time, by bits", exponent(bits, by_bits), 1.0, "<= 2"),
    ]


def same_codes(train: Dataset) -> Row:
    """Count the bits that differ between 1 and 2 threads, and between two runs."""

    def fitted(threads: int) -> np.ndarray:
        numba.set_num_threads(threads)
        return MFDCF().fit(train, seed=3).items.rows()

    one, two, again = fitted(1), fitted(2), fitted(2)
    differing = int((one != two).sum() + (two != again).sum())
    return Row("differing bits, 1 and 2 threads, two runs", float(differing), 1.0, "<= 0")


def evaluation(train: Dataset, cold: Dataset) -> Row:
    model, trial = MFDCF().fit(train), make_trial(train, cold)

    def judge() -> None:
        rank(lambda people, history: model.score(model.encode(people, history)), trial)

    judge()  # compile
    seconds = best_times({"judge": judge}, 1)["judge"]
    return Row("seconds to judge 1,208 cold users / 2", seconds, 2.0, "<= 1")


def main() -> None:
    args = options(__doc__ or "")
    repeats = 2 if args.quick else 5
    rows = growth(2, args.quick)
    if args.data is None:
        print("no data folder: only the growth is measured", file=sys.stderr)
    else:
        train, cold = split_cold_users(read("ml-1m", args.data))
        rows += beside_peers(train, cold, repeats) + beside_bandwidth(train, repeats)
        rows += [same_codes(train), evaluation(train, cold)]
    finish(rows, args.out)


if __name__ == "__main__":
    main()
