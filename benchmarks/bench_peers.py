"""Peers side by side for strangers of MovieLens-1M: accuracy, fit, bytes an item, time to answer.

Everybody gets the same splits, candidates and strangers (age, gender, occupation), and is judged by
the same code, ties counted by expectation. Where a peer has several settings, those are taken that
do best on a fifth of the training users (the first ones with `--quick`); nobody is tuned on the
test users. A fit is timed from the data set for ours, and from ready features and matrices for the
peers, which favours them; all may use 2 threads. LightFM's threads race, so that its accuracy
differs from run to run. An answer is the best 10 for one stranger, from a dict, on one thread; the
peers get our encoder of features and give rows and scores, ours is a whole `recommend` with ids.
There are no targets here: those are in `bench_accuracy.py`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # or peers spin for cores that others use

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import faiss
import numpy as np
from implicit.cpu.topk import topk
from rivals import (
    IRSPACK,
    LIGHTFM,
    People,
    als,
    by_feature_weights,
    irspack_ials,
    lightfm_warp,
    weighted,
)
from table import finish, options, with_version
from threadpoolctl import threadpool_limits

from coldhash import MFDCF, Dataset, Recommender, read, split_cold_users
from coldhash.arrays.codes import pack, signs
from coldhash.baselines.controls import Popularity, Ridge
from coldhash.errors import CodeCollapse
from coldhash.evaluate.metrics import judge
from coldhash.evaluate.protocol import ScoreFunction, make_trial, scorer

K = 10
Person = dict[str, Any]


@dataclass
class Method:
    """A fitted method: how it scores, how it answers, what it costs."""

    name: str
    package: str
    settings: str
    score: ScoreFunction
    answer: Callable[[Person], object]
    bytes_per_item: float
    seconds: float  # of the fit


def timed(fit: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return fit(), time.perf_counter() - start


def best(scores: np.ndarray) -> np.ndarray:
    """Give the rows of the best K, in order."""
    rows = np.argpartition(-scores, K)[:K]
    return rows[np.argsort(-scores[rows])]


def ours(train: Dataset) -> Iterator[Method]:
    for name, settings, fitted in (
        ("ridge", "real-valued, the settings it ships with", Ridge()),
        ("popularity", "favourites counted", Popularity()),
    ):
        model, seconds = timed(lambda fitted=fitted: fitted.fit(train))
        yield method(name, settings, model, seconds)
    model, seconds = timed(lambda: MFDCF().fit(train))
    yield method("MFDCF", "64 bits, real-valued strangers", model, seconds)
    yield method("MFDCF, Hamming", "64 bits, codes on both sides", model, seconds, "hamming")
    model, seconds = timed(lambda: MFDCF(level=False).fit(train))  # FAISS knows no level
    yield method("MFDCF, no level", "64 bits, real-valued strangers", model, seconds)
    yield from by_faiss(model, seconds)


def method(
    name: str, settings: str, model: Recommender, seconds: float, how: str = "real"
) -> Method:
    return Method(
        name,
        "coldhash",
        settings,
        scorer(model, how),
        lambda person: model.recommend(person, k=K, score=how, unknown="ignore"),
        model.bytes_per_item,
        seconds,
    )


def by_faiss(model: Recommender, seconds: float) -> Iterator[Method]:
    """Let FAISS search the codes of a model: as bits, and as floats."""
    n_items, n_bits = len(model.items), model.items.n_bits
    binary, flat = faiss.IndexBinaryFlat(n_bits), faiss.IndexFlatIP(n_bits)
    binary.add(model.items.packed().view(np.uint8))
    flat.add(model.items.rows().astype(np.float32))

    def as_bits(people: Any) -> np.ndarray:
        return pack(signs(model.encode(people, unknown="ignore").vectors)).view(np.uint8)

    def as_floats(people: Any) -> np.ndarray:
        return np.ascontiguousarray(
            model.encode(people, unknown="ignore").vectors, dtype=np.float32
        )

    def scores(index: Any, queries: np.ndarray, sign: float) -> np.ndarray:
        """Turn FAISS's list of the whole catalogue back into a score for each item."""
        values, rows = index.search(queries, n_items)
        found = np.empty(values.shape, dtype=np.float32)
        np.put_along_axis(found, rows, sign * values.astype(np.float32), axis=1)
        return found

    yield Method(
        "FAISS IndexBinaryFlat over MFDCF's codes",
        "faiss-cpu",
        "64 bits, codes on both sides; encoded by MFDCF, no level",
        lambda people, _: scores(binary, as_bits(people), -1.0),
        lambda person: binary.search(as_bits(person), K),
        n_bits / 8,
        seconds,
    )
    yield Method(
        "FAISS IndexFlatIP over MFDCF's codes as floats",
        "faiss-cpu",
        "64 floats, real-valued strangers; encoded by MFDCF, no level",
        lambda people, _: scores(flat, as_floats(people), 1.0),
        lambda person: flat.search(as_floats(person), K),
        4.0 * n_bits,
        seconds,
    )


def by_implicit(train: Dataset, people: People) -> Iterator[Method]:
    """Fit ALS, which knows no features: everybody as the mean user, or with a map put before it."""
    ratings = weighted(train.ratings.matrix, train.ratings.scale[1])
    model, seconds = timed(lambda: als(ratings, 16))
    to_factors, more = timed(lambda: people.to_factors(model))
    items, mean = model.item_factors, model.user_factors.mean(axis=0, keepdims=True)
    settings = "16 factors, favourites 1 and other ratings 0.3, 15 iterations"
    yield Method(
        "implicit ALS, the mean user for everybody",
        "implicit",
        settings,
        lambda people, _: np.repeat(mean @ items.T, people.num_rows, axis=0),
        lambda _: topk(items, mean, K, num_threads=1),
        4.0 * items.shape[1],
        seconds,
    )
    yield Method(
        "implicit ALS + our ridge map from features",
        "implicit",
        settings + "; ridge 30",
        lambda asked, _: people.of(asked) @ to_factors @ items.T,
        lambda person: topk(items, people.of(person) @ to_factors, K, num_threads=1),
        4.0 * items.shape[1],
        seconds + more,
    )


def by_irspack(train: Dataset, people: People, setting: tuple) -> Iterator[Method]:
    """Fit iALS once; a stranger is somebody who rated nothing, or the features alone."""
    model, seconds = timed(lambda: irspack_ials(train, people, *setting))
    pick, alpha0, reg, strength = setting
    settings = (
        f"64 components, 12 epochs, ratings: {pick.__name__}, alpha0 {alpha0}, reg {reg}, "
        f"lambda_user_feature {strength:g}"
    )
    items = model.get_item_embedding()

    def as_nobody(asked: Any) -> np.ndarray:
        return model.get_score_cold_user_from_features(people.of(asked))

    def by_weights(asked: Any) -> np.ndarray:
        return by_feature_weights(model, people.of(asked))

    for name, scores in (
        ("irspack iALS with user features, its way for strangers", as_nobody),
        ("irspack iALS with user features, its weights of features alone", by_weights),
    ):
        yield Method(
            name,
            "irspack",
            settings,
            lambda asked, _, scores=scores: scores(asked),
            lambda person, scores=scores: best(scores(person)[0]),
            4.0 * items.shape[1],
            seconds,
        )


def by_lightfm(train: Dataset, people: People, setting: tuple) -> Iterator[Method]:
    model, seconds = timed(lambda: lightfm_warp(train, people, *setting))
    components, epochs, own_vectors = setting
    biases, items = model.get_item_representations()
    of_features = model.user_embeddings[: people.train.shape[1]]  # all that a stranger has

    def scores(asked: Any) -> np.ndarray:
        return people.of(asked) @ of_features @ items.T + biases

    yield Method(
        "LightFM, WARP, with user features",
        "lightfm-next",
        f"favourites, {components} components, {epochs} epochs, "
        f"{'with' if own_vectors else 'without'} a vector for each training user",
        lambda asked, _: scores(asked),
        lambda person: best(scores(person)[0]),
        4.0 * (items.shape[1] + 1),
        seconds,
    )


def chosen(
    fit: Callable[..., Iterator[Method]], settings: list[tuple], train: Dataset, seed: int
) -> tuple:
    """Choose settings by Accuracy@10 on a fifth of the training users."""
    part, held_out = split_cold_users(train, seed=1000 + seed)
    people, trial = People(part, held_out), make_trial(part, held_out, seed=seed)
    found = [
        max(
            judge(each.score, trial, (K,)).metrics[f"accuracy@{K}"]
            for each in fit(part, people, setting)
        )
        for setting in settings
    ]
    for setting, accuracy in zip(settings, found, strict=True):
        print(f"  held out: {fit.__name__} {setting[-3:]} {accuracy:.4f}", file=sys.stderr)
    return settings[int(np.argmax(found))]


def methods(train: Dataset, cold: Dataset, seed: int, quick: bool) -> Iterator[Method]:
    people = People(train, cold)
    yield from ours(train)
    yield from by_implicit(train, people)
    tuned = [(by_irspack, IRSPACK)]
    if find_spec("lightfm") is not None:
        tuned.append((by_lightfm, LIGHTFM))
    for fit, settings in tuned:
        setting = settings[0] if quick else chosen(fit, settings, train, seed)
        yield from fit(train, people, setting)


def microseconds(fitted: list[Method], strangers: list[Person]) -> list[float]:
    """Ask all methods in turns about one stranger after the other; gives the medians."""
    times = np.empty((len(strangers), len(fitted)))
    with threadpool_limits(1):
        for row, person in enumerate(strangers):
            for column, each in enumerate(fitted):
                times[row, column] = timed(lambda each=each, person=person: each.answer(person))[1]
    return list(np.median(times[len(times) // 10 :], axis=0) * 1e6)  # the first warm up


def one_split(data: Dataset, seed: int, quick: bool) -> list[dict[str, Any]]:
    train, cold = split_cold_users(data, seed=seed)
    trial = make_trial(train, cold, seed=seed)
    fitted = list(methods(train, cold, seed, quick))
    strangers = cold.users.slice(0, 100 if quick else 1000).to_pylist()
    strangers = [{name: told for name, told in one.items() if told} for one in strangers]
    found = []
    for each, micros in zip(fitted, microseconds(fitted, strangers), strict=True):
        metrics = judge(each.score, trial, (K,)).metrics
        found.append(
            {
                "method": each.name,
                "package": with_version(each.package),
                "settings": each.settings,
                "accuracy@10": metrics["accuracy@10"],
                "ndcg@10": metrics["ndcg@10"],
                "fit s": each.seconds,
                "bytes an item": each.bytes_per_item,
                "µs a stranger": micros,
            }
        )
        print(f"  {each.name}: {metrics['accuracy@10']:.4f}, {each.seconds:.2f} s", file=sys.stderr)
    return found


def together(splits: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Average accuracy over splits; of times the median; name all settings that were chosen."""
    rows = []
    for same in zip(*splits, strict=True):
        row: dict[str, Any] = dict(same[0])
        row["settings"] = " / ".join(dict.fromkeys(one["settings"] for one in same))
        for name in ("accuracy@10", "ndcg@10"):
            row[name] = float(np.mean([one[name] for one in same]))
        for name in ("fit s", "µs a stranger"):
            row[name] = float(np.median([one[name] for one in same]))
        rows.append(row)
    return sorted(rows, key=lambda row: -row["accuracy@10"])


def show(rows: list[dict[str, Any]]) -> None:
    width = max(len(row["method"]) for row in rows)
    head = ("Acc@10", "NDCG@10", "fit s", "bytes", "µs")
    print(f"{'method':{width}}", *(f"{name:>8}" for name in head))
    for row in rows:
        print(
            f"{row['method']:{width}} {row['accuracy@10']:8.4f} {row['ndcg@10']:8.4f} "
            f"{row['fit s']:8.2f} {row['bytes an item']:8.0f} {row['µs a stranger']:8.0f}"
        )
    print()


def main() -> None:
    args = options(__doc__ or "", needs_data=True)
    warnings.simplefilter("ignore", CodeCollapse)
    faiss.omp_set_num_threads(1)
    MFDCF().fit(read("sample", n_users=300, n_items=120))  # compile
    data = read("ml-1m", args.data)
    rows = together([one_split(data, seed, args.quick) for seed in range(1 if args.quick else 3)])
    show(rows)
    if find_spec("lightfm") is None:
        hint = "not installed: pip install 'coldhash[bench-lightfm]' builds it, with a C compiler"
        rows.append({"method": "LightFM, WARP, with user features", "settings": hint})
        print(f"LightFM is {hint}", file=sys.stderr)
    finish([], args.out, rows)


if __name__ == "__main__":
    main()
