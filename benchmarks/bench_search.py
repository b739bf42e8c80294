"""Search beside FAISS, implicit and BLAS, at the same number of threads; times in microseconds.

Codes and queries are random. Items with levels have as many bytes, one of them for the level, and
the share of users who like the j-th item is .3 / j. All queries of a batch have the same 500 seen
items, because a selector of FAISS belongs to a call. Lists and selectors are built before the clock
starts, ours by rows, which the search sorts; copies in float32 are left out at 10 million items,
where they would take gigabytes.

Quantizers of FAISS with fast scans hold real vectors: PQ16x4fs has the 8 bytes an item of our codes
of 64 bits, RaBitQfs 16. Both sides hold the same normal vectors, ours as their signs. Recall is the
share of the first 10 of the exact real-valued order that is among the first 10 and 100 found. One
row is at the number of threads that OpenMP takes by default.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # or peers spin for cores that others use

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import faiss
import numpy as np
from implicit.cpu.topk import topk
from table import Row, best_times, finish, options
from threadpoolctl import threadpool_limits

from coldhash.arrays.codes import pack, signs, unpack
from coldhash.arrays.products import SparseRows
from coldhash.search import CodeIndex, Search

BATCHES = {4_000: 1000, 100_000: 1000, 1_000_000: 200, 10_000_000: 20}
HAMMING = {4_000: "<= 0.5", 100_000: "<= 0.4", 1_000_000: "<= 0.4", 10_000_000: "<= 0.6"}
QUANTIZERS = ("PQ16x4fs", "RaBitQfs")
N_TRAINED = 20_000  # vectors that a quantizer of FAISS is trained on
N_RECALLED = 50  # queries that recall is averaged over
DENSE = 1_000_000  # items up to which there is a copy in float32
FAISS = "faiss-cpu"
PACKAGES = {"BLAS product": "numpy", "implicit": "implicit", "FAISS": FAISS}
SECONDS = 0.4  # for all turns of a race, but for two at least
N_SEEN = 500


def race(functions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Give best times in microseconds, of as many turns as fit the time."""
    best, turns, stop = best_times(functions, 1), 1, time.perf_counter() + SECONDS
    while turns < 2 or (turns < 300 and time.perf_counter() < stop):
        again = best_times(functions, 1)
        best = {name: min(best[name], again[name]) for name in functions}
        turns += 1
    return {name: 1e6 * seconds for name, seconds in best.items()}


def asked(queries: np.ndarray) -> str:
    return "one query" if len(queries) == 1 else "batch"


class Catalogue:
    """Random codes of one size, in our index and in those of the peers."""

    def __init__(self, n_items: int, n_bits: int, rng: np.random.Generator) -> None:
        self.n_items, self.n_bits, self.rng = n_items, n_bits, rng
        self.packed = self.codes(n_items)
        self.index = CodeIndex.of(self.packed, n_bits, np.zeros(n_items))
        self.binary = faiss.IndexBinaryFlat(n_bits)
        self.binary.add(self.packed.view(np.uint8))
        self.seen = rng.choice(n_items, N_SEEN, replace=False)
        self.dense = None
        if n_items <= DENSE:
            self.dense = unpack(self.packed, n_bits).astype(np.float32)
            self.flat = faiss.IndexFlatIP(n_bits)
            self.flat.add(self.dense)
        shares = np.maximum(0.3 / np.arange(1, n_items + 1), 1e-6)
        levels = np.round(255 * np.sqrt(shares / shares[0])).astype(np.uint8)
        gains = np.sqrt(shares[0]) * np.arange(256) / 255
        steps = np.arange(256, dtype=np.int32) // 16
        tables = (levels, gains.astype(np.float32), steps)
        self.leveled = CodeIndex.of(self.packed, n_bits - 8, np.zeros(n_items), *tables)

    def codes(self, n_codes: int) -> np.ndarray:
        return self.rng.integers(2**64, size=(n_codes, self.n_bits // 64), dtype=np.uint64)

    def rows(self, batch: int, threads: int) -> Iterator[Row]:
        """Measure everything for one batch size."""
        what = f"{self.n_bits} bits, {self.n_items:,} items, {threads} threads, batch {batch}"
        codes = self.codes(batch)
        vectors = self.rng.standard_normal((batch, self.n_bits)).astype(np.float32)
        for k in (10, 100):
            yield self.hamming(f"Hamming, {what}, k {k}", codes, k, threads)
        yield self.filtered(f"Hamming, {what}, k 10, {N_SEEN} seen", codes, threads)
        for k in (10, 100):
            yield from self.real(f"real, {what}, k {k}", codes, vectors, k, threads)
            yield from self.with_level(what, codes, vectors, k, threads)

    def with_level(
        self, what: str, codes: np.ndarray, vectors: np.ndarray, k: int, threads: int
    ) -> Iterator[Row]:
        """Compare items with a level with those of as many bytes without."""
        usual = Search(threads=threads)
        n_bits, family = self.n_bits - 8, f"level, {self.n_items:,} items, {asked(codes)}"
        short = np.ascontiguousarray(vectors[:, :n_bits]) / n_bits
        for name, plain, ours in (
            (
                "Hamming",
                lambda: self.index.hamming(codes, k, usual),
                self.leveled.hamming,
            ),
            (
                "real",
                lambda: self.index.weighted(vectors, k, usual),
                self.leveled.weighted,
            ),
        ):
            queries = codes if name == "Hamming" else short
            times = race({"ours": partial(ours, queries, k, usual), "plain": plain})
            label = f"{name} with level, {what}, k {k} / without"
            yield Row(label, times["ours"], times["plain"], "<= 1.5", family=f"{name}, {family}")

    def hamming(self, what: str, codes: np.ndarray, k: int, threads: int) -> Row:
        as_bytes, usual = codes.view(np.uint8), Search(threads=threads)
        times = race(
            {
                "ours": lambda: self.index.hamming(codes, k, usual),
                "peer": lambda: self.binary.search(as_bytes, k),
            }
        )
        family = f"Hamming, {self.n_bits} bits, {self.n_items:,} items, {asked(codes)} / FAISS"
        target = HAMMING[self.n_items]
        return Row(f"{what} / FAISS", times["ours"], times["peer"], target, FAISS, family)

    def filtered(self, what: str, codes: np.ndarray, threads: int) -> Row:
        as_bytes = codes.view(np.uint8)
        excluded = SparseRows.of_lists([self.seen] * len(codes), self.n_items)
        usual = Search(excluded, threads=threads)
        seen = faiss.IDSelectorBatch(self.seen)  # a name of its own: the other only points to it
        wanted = faiss.SearchParameters(sel=faiss.IDSelectorNot(seen))
        times = race(
            {
                "ours": lambda: self.index.hamming(codes, 10, usual),
                "peer": lambda: self.binary.search(as_bytes, 10, params=wanted),
            }
        )
        family = f"Hamming, {N_SEEN} seen, {self.n_items:,} items / FAISS"
        return Row(f"{what} / FAISS", times["ours"], times["peer"], "<= 0.25", FAISS, family)

    def real(
        self, what: str, codes: np.ndarray, vectors: np.ndarray, k: int, threads: int
    ) -> Iterator[Row]:
        usual = Search(threads=threads)
        times = race(
            {
                "ours": lambda: self.index.weighted(vectors, k, usual),
                "own Hamming": lambda: self.index.hamming(codes, k, usual),
            }
        )
        family = f"real, {self.n_items:,} items"
        yield Row(
            f"{what} / own Hamming",
            times["ours"],
            times["own Hamming"],
            "<= 5",
            family=f"{family} / own Hamming",
        )
        dense = self.dense
        if dense is None:
            return
        peers: dict[str, Callable[[], object]] = {"BLAS product": lambda: dense @ vectors[0]}
        if len(vectors) > 1:
            peers = {
                "implicit": lambda: topk(dense, vectors, k, num_threads=threads),
                "FAISS": lambda: self.flat.search(vectors, k),
            }
        for name, peer in peers.items():  # one at a time: peers leave little of ours in the cache
            functions = {"ours": lambda: self.index.weighted(vectors, k, usual)}
            times = race(functions | {name: peer})
            target = "<= 0.1667" if len(vectors) == 1 else "<= 0.3333"
            yield Row(
                f"{what} / {name}",
                times["ours"],
                times[name],
                target,
                PACKAGES[name],
                f"{family}, {asked(vectors)} / {name}",
            )

    def reading(self, threads: int) -> Row:
        """Compare the speed of reading memory, in GB/s a thread, with that of numpy's sum."""
        usual = Search(threads=threads)
        query, parts = self.codes(1), np.array_split(self.packed.ravel(), threads)
        with ThreadPoolExecutor(threads) as pool:
            times = race(
                {
                    "ours": lambda: self.index.hamming(query, 10, usual),
                    "peer": lambda: list(pool.map(np.sum, parts)),
                }
            )
        speeds = {name: self.packed.nbytes / 1e3 / times[name] / threads for name in times}
        what = f"GB/s a thread, {self.n_bits} bits, {self.n_items:,} items, {threads} threads"
        return Row(f"{what} / numpy sum", speeds["ours"], speeds["peer"], ">= 0.6", "numpy")


def recall(found: np.ndarray, best: np.ndarray) -> float:
    """Compute the share of the best that is found."""
    pairs = zip(found, best, strict=True)
    return float(np.mean([len({*ours} & {*exact}) / len(exact) for ours, exact in pairs]))


def quantized(n_items: int, rng: np.random.Generator, all_threads: int) -> Iterator[Row]:
    """Compare a real query over codes with the fast scans of FAISS over the same vectors."""
    n_bits, k = 64, 10
    vectors = rng.standard_normal((n_items, n_bits)).astype(np.float32)
    queries = rng.standard_normal((N_RECALLED, n_bits)).astype(np.float32)
    one, flat = np.ascontiguousarray(queries[:1]), faiss.IndexFlatIP(n_bits)
    flat.add(vectors)
    best = flat.search(queries, k)[1]
    index = CodeIndex.of(pack(signs(vectors)), n_bits, np.zeros(n_items))
    lengths = (k, 10 * k)
    ours = [recall(index.weighted(queries, n)[0], best) for n in lengths]
    for name in QUANTIZERS:
        peer = faiss.index_factory(n_bits, name, faiss.METRIC_INNER_PRODUCT)
        peer.train(vectors[:N_TRAINED])
        peer.add(vectors)
        theirs = [recall(peer.search(queries, n)[1], best) for n in lengths]
        recalls = list(zip(lengths, ours, theirs, strict=True))
        for threads in (1, all_threads):
            faiss.omp_set_num_threads(threads)
            usual = Search(threads=threads)
            times = race(
                {
                    "ours": partial(index.weighted, one, k, usual),
                    "peer": partial(peer.search, one, k),
                }
            )
            what = f"real, 64 bits, {n_items:,} items, {threads} threads, k {k} / FAISS {name}"
            family = f"real, 64 bits, {n_items:,} items, one query / FAISS {name}"
            shares = "".join(f", recall@{n} {own:.2f} / {other:.2f}" for n, own, other in recalls)
            yield Row(what + shares, times["ours"], times["peer"], "<= 1.0", FAISS, family)


def main() -> None:
    args = options(__doc__ or "")
    rng, all_threads = np.random.default_rng(0), faiss.omp_get_max_threads()
    sizes = [n for n in BATCHES if not args.quick or n <= 100_000]
    rows = []
    for n_bits in (64, 128):
        for n_items in sizes:
            catalogue = Catalogue(n_items, n_bits, rng)
            for threads in (1,) if args.quick else (1, 2):
                faiss.omp_set_num_threads(threads)
                with threadpool_limits(threads):
                    for batch in (1, BATCHES[n_items]):
                        rows += catalogue.rows(batch, threads)
                    if n_items == 10_000_000 and n_bits == 64:
                        rows.append(catalogue.reading(threads))
    for n_items in (100_000,) if args.quick else (100_000, 1_000_000):
        rows += quantized(n_items, rng, all_threads)
    finish(rows, args.out)


if __name__ == "__main__":
    main()
