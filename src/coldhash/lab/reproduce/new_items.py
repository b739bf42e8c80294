"""New items: how well items that nobody has rated find their users, beside peers by content."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coldhash.baselines.shared import favourite_matrix
from coldhash.data.dataset import Dataset
from coldhash.data.sources import read
from coldhash.data.splits import split_cold_items
from coldhash.features.fitting import fit_content
from coldhash.lab.cold_items import choose_peers, item_accuracy_at, model_scores
from coldhash.lab.reproduce.report import DATASETS, Section, format_accuracy, method_name
from coldhash.lab.runner import RunProgress
from coldhash.mfdcf.model import MFDCF
from coldhash.render import format_table
from coldhash.update import add_items

_NAMES = ("ml-1m", "book-crossing", "complete-journey")
_MAX_USERS = 1000  # whose favourites among new items are looked for


def new_items_section(data: Path, quick: bool, progress: RunProgress | None) -> Section:
    """Hold out items of every data set, and rank them for the users who know the others."""
    names, n_splits = (_NAMES[:1], 1) if quick else (_NAMES, 3)
    rows = []
    for done, name in enumerate(names, 1):
        source = read(name, data)
        source = source.of_items(np.flatnonzero(source.ratings.per_item))
        found = [_judge(source, seed) for seed in range(n_splits)]
        for method in found[0]:
            mean = np.mean([each[method] for each in found])
            rows.append([DATASETS[name], method, format_accuracy(float(mean))])
        if progress is not None:
            progress(done, len(names), name)
    text = (
        "A tenth of the items is held out with all ratings; the favourites of training users among"
        f" them are ranked among all new items, Accuracy@10, mean over {n_splits} split(s). The"
        " peers score content for each user, in the form that is best on held-out training items."
    )
    table = format_table(["data", "method", "Accuracy@10"], rows)
    return Section("new-items", "Items that nobody has rated", f"{text}\n\n{table}")


def _judge(data: Dataset, seed: int) -> dict[str, float]:
    train, cold = split_cold_items(data, 0.1, seed)
    table = cold.items.append_column("item_id", cold.ratings.items.values)
    model, _ = add_items(MFDCF().fit(train, seed=seed), table)
    users = np.flatnonzero(np.diff(favourite_matrix(cold).indptr))
    users = np.sort(np.random.default_rng(seed).permutation(users)[:_MAX_USERS])
    known, new = train.of_users(users), cold.of_users(users)
    ids = list(new.ratings.users), list(new.ratings.items)
    scores = {
        method_name("mfdcf", score): model_scores(model, *ids, by_code=score == "hamming")
        for score in ("real", "hamming")
    }
    encoder = fit_content(train.plan, train.items)
    content, wanted = (encoder.apply(each.items, len(each.ratings.items)) for each in (train, cold))
    for name, peer in choose_peers(known, seed).items():
        scores[name] = peer.scores(favourite_matrix(known), content, wanted)
    return {name: item_accuracy_at(10, each, new) for name, each in scores.items()}
