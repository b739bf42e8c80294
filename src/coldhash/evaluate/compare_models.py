"""Models side by side on one data set: the same splits, users and candidates for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coldhash.data.dataset import Dataset
from coldhash.data.splits import cold_user_splits
from coldhash.evaluate.lists import KS, judge
from coldhash.evaluate.protocol import make_trial, protocol_named, scorer
from coldhash.evaluate.statistics import Interval, UserHits, Verdict, compare, interval
from coldhash.recommender.recommender import Score
from coldhash.registry import Model


@dataclass(frozen=True)
class Standing:
    """How one model did: means over splits, how sure they are, and how the first model compares.

    `sure` is accuracy as the protocol counts it, ties and averages included.

    Examples
    --------
    >>> from coldhash import read
    >>> from coldhash.registry import MODELS
    >>> data = read("sample", n_users=200, n_items=60)
    >>> alone = beside(data, {"popularity": MODELS["popularity"]()}, splits=2)[0]
    >>> alone.model, alone.versus, alone.sure.low <= alone.metrics["accuracy@10"] <= alone.sure.high
    ('popularity', None, True)
    """

    model: str
    shots: int
    metrics: dict[str, float]
    sure: Interval
    versus: Verdict | None  # of the first model against this one; None for itself


def beside(
    data: Dataset,
    models: Mapping[str, Model],
    *,
    splits: int = 5,
    share: float = 0.2,
    shots: Sequence[int] = (0,),
    protocol: str = "sampled-1000",
    score: Score = "real",
    k: int = 10,
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Standing]:
    """Fit every model on every split and judge it; the interval and the comparison are at `k`.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> from coldhash.registry import MODELS
    >>> models = {"mfdcf": MFDCF(n_bits=32), "popularity": MODELS["popularity"]()}
    >>> found = beside(read("sample", n_users=500, n_items=200), models, splits=2)
    >>> [(each.model, each.versus) for each in found]  # mfdcf is ahead of popularity
    [('mfdcf', None), ('popularity', 'ahead')]
    """
    metrics: dict[tuple[str, int], list[dict[str, float]]] = {}
    hits: dict[tuple[str, int], list[UserHits]] = {}
    done, total = 0, splits * len(models)
    ks = tuple(sorted({*KS, k}))
    counted = protocol_named(protocol)
    for number, (train, cold) in enumerate(cold_user_splits(data, share, seed, splits)):
        split_seed = seed + number
        trials = {
            n: make_trial(train, cold, protocol=protocol, n_given=n, seed=split_seed) for n in shots
        }
        for name, settings in models.items():
            fitted = settings.fit(train, seed=split_seed)
            for n, trial in trials.items():
                judged = judge(scorer(fitted, score), trial, ks)
                metrics.setdefault((name, n), []).append(judged.metrics)
                fair = counted.ties == "expected"
                at_k = (judged.hits if fair else judged.hits_optimistic)[:, ks.index(k)]
                ids = np.array(list(cold.ratings.users), dtype=object)
                hits.setdefault((name, n), []).append(UserHits(ids, at_k, judged.pairs))
            done += 1
            if progress is not None:
                progress(done, total, f"{name}, split {number}")
    first = next(iter(models))
    return [
        Standing(
            name,
            n,
            _means(found),
            interval(hits[name, n], average=counted.average),
            None
            if name == first
            else compare(hits[first, n], hits[name, n], average=counted.average).verdict,
        )
        for (name, n), found in metrics.items()
    ]


def _means(found: list[dict[str, Any]]) -> dict[str, float]:
    return {name: float(np.mean([each[name] for each in found])) for name in found[0]}
