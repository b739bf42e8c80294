"""Every data set beside popularity, ridge and real-valued peers; dislikes; the popularity dial.

The matrix is that of `coldhash reproduce anywhere`; peers fold in the same events, each data set
and split in a process of its own. Where a peer has several settings, the best on the test users
counts, which favours the peer. With `--sets` only cells, peers and figures of some data sets are
computed; with `--runs` a later call takes the runs of the matrix from there.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.sparse import csr_array
from table import Row, finish, parser

from coldhash import MFDCF, Dataset, Recommender, read
from coldhash.baselines.controls import Popularity
from coldhash.data.dataset import split_cold_users, split_first_ratings
from coldhash.evaluate.metrics import judge
from coldhash.evaluate.protocol import ScoreFunction, Trial, make_trial, scorer
from coldhash.lab.experiment import Experiment, experiments_folder
from coldhash.lab.reproduce.extensions import by_data, find_below, geometric_mean, make_cells
from coldhash.lab.runner import Results, run_experiment

SHOTS = (0, 1, 5, 20)
CASES = [  # data set, ratings that a training user has at most (0: all), protocol
    ("ml-1m", 0, "sampled-1000"),
    ("ml-1m", 2, "sampled-1000"),
    ("ml-1m", 5, "sampled-1000"),
    ("ml-1m", 20, "sampled-1000"),
    ("ml-100k", 0, "sampled-1000"),
    ("book-crossing", 0, "sampled-1000"),
    ("complete-journey", 0, "sampled-1000"),
    ("jester", 0, "full"),
]
PENALTIES = (100.0, 500.0, 2000.0)  # of EASE
PEERS = {"ALS": "implicit", "irspack": "irspack", "EASE": ""}
SETS = list(dict.fromkeys(name for name, *_ in CASES))
RATED_SETS = ("ml-1m", "ml-100k", "jester")
N_DISLIKES = 10_000
N_NEIGHBOURS = 10

Accuracies = dict[tuple[str, int], float]  # by method and number of events given
PeerAccuracies = dict[tuple[str, int, str, int], float]  # also by data set and ratings a user

START = time.monotonic()


def tell(text: str) -> None:
    """Print what is being done, and the minutes since the start."""
    print(f"{(time.monotonic() - START) / 60:5.1f} min  {text}", file=sys.stderr, flush=True)


def select(plan: Experiment, sets: list[str], n_splits: int) -> Experiment:
    """Restrict an experiment to some data sets."""
    models = []
    for each in plan.models:
        own = each if "datasets" in each.model_fields_set else plan
        kept = [name for name in own.datasets if name in sets]
        if kept:
            models.append(each.model_copy(update={"datasets": kept}))
    return plan.model_copy(update={"models": models, "splits": n_splits})


def split(folder: Path, name: str, user_ratings: int, seed: int) -> tuple[Dataset, Dataset]:
    """Split a data set, and thin its training part, as the experiment does."""
    train, cold = split_cold_users(read(name, folder), seed=seed, described=True)
    if user_ratings:
        train, _ = split_first_ratings(train, user_ratings, seed, "random")
    return train, cold


def accuracy(score: ScoreFunction, trial: Trial) -> float:
    return judge(score, trial, (10,)).metrics["accuracy@10"]


def matrix(experiment: Experiment, folder: Path, out: Path) -> tuple[Results, list[Row]]:
    """Run the experiment; a row for every promise about it."""
    jobs = os.cpu_count() or 1
    results = run_experiment(
        experiment, folder, out, jobs, lambda done, n, last: tell(f"{done} of {n} {last}")
    )
    compared = Results([row for row in results.rows if row["label"] != "dial"])
    cells = list(make_cells(compared))
    below = find_below(cells)
    for cell in sorted(cells, key=lambda cell: cell.ratio):
        print(
            f"{cell.data}, {cell.shots} given, {cell.score} @{cell.k}: {cell.accuracy:.4f} /"
            f" {cell.popularity:.4f} = {cell.ratio:.3f} (p {cell.p:.2g})"
            f"{'  BELOW' if cell in below else ''}"
        )
    what = f"of {len(cells)} cells significantly below popularity, by Holm's rule"
    rows = [Row(what, len(below), 1.0, "<= 0")]
    for score in ("real", "hamming"):
        mean = geometric_mean([cell for cell in cells if cell.score == score])
        rows.append(Row(f"{score} / popularity, geometric mean of cells", mean, 1.0, ">= 1"))
    for data, part in by_data(compared.where(dataset="ml-1m", shots=0)):
        if part.rows[0]["user_ratings"] in (2, 5):
            ours = part.where(label="mfdcf", score="real").mean("accuracy@10")
            ridge = part.where(label="ridge").mean("accuracy@10")
            rows.append(Row(f"{data}, real / ridge @10", ours, ridge, ">= 0.98"))
    return results, rows


def peers(folder: Path, name: str, user_ratings: int, protocol: str, seed: int) -> Accuracies:
    """Fit the peers, and fold in what strangers give."""
    from rivals import IRSPACK, Ease, People, als, by_rows, everything, favourites, irspack_ials

    train, cold = split(folder, name, user_ratings, seed)
    n_cold, highest = cold.n_users, train.feedback.bound / 0.6  # of which rivals take .6 again
    people = People(train, cold) if train.users.num_columns else None
    of_train = people.train if people else np.zeros((train.n_users, 0), np.float32)
    of_cold = people.cold if people else np.zeros((n_cold, 0), np.float32)
    picks = {"favourites": favourites, "everything": everything}
    events = {how: pick(train.ratings.matrix, highest) for how, pick in picks.items()}
    factors = [(how, als(events[how], n)) for how in picks for n in (16, 64)]
    eases = [(how, Ease(events[how], of_train, p)) for how in picks for p in PENALTIES]
    ials = [(each[0], irspack_ials(train, people, *each)) for each in IRSPACK] if people else []
    found: Accuracies = {}
    for n in SHOTS:
        trial = make_trial(train, cold, protocol=protocol, n_given=n, seed=seed)
        given = {how: pick(trial.given, highest) for how, pick in picks.items()}
        scores = defaultdict(list)
        for how, ease in eases:
            scores["EASE"].append(ease.scores(given[how], of_cold))
        for how, model in factors:
            if n:
                vectors = model.recalculate_user(np.arange(n_cold), given[how])
                scores["ALS"].append(vectors @ model.item_factors.T)
            elif people:
                scores["ALS"].append(people.mapped(model))
        for pick, model in ials:
            folded = model.get_score_cold_user(pick(trial.given, highest), user_features=of_cold)
            scores["irspack"].append(folded.astype(np.float32))
        for peer, several in scores.items():
            found[peer, n] = max(accuracy(by_rows(each), trial) for each in several)
    return found


def all_peers(folder: Path, cases: list[tuple[str, int, str]], seeds: range) -> PeerAccuracies:
    """Average the accuracies of peers over splits, each in a process of its own."""
    found = defaultdict(list)
    context = multiprocessing.get_context("spawn")
    for name, user_ratings, protocol in cases:
        for seed in seeds:
            tell(f"peers: {name}, {user_ratings or 'all'} ratings a user, split {seed}")
            with ProcessPoolExecutor(1, context) as pool:
                job = pool.submit(peers, folder, name, user_ratings, protocol, seed)
                try:
                    for (peer, n), value in job.result().items():
                        found[name, user_ratings, peer, n].append(value)
                except BrokenProcessPool:
                    tell("the process of the peers was killed: this split is left out")
    return {key: float(np.mean(values)) for key, values in found.items()}


def show_side_by_side(
    results: Results, cases: list[tuple[str, int, str]], of_peers: PeerAccuracies
) -> None:
    """Print Accuracy@10 of all methods by data set and number of events given."""
    for (name, user_ratings, _), n in product(cases, SHOTS):
        part = results.where(dataset=name, user_ratings=user_ratings, shots=n)
        found = {}
        for label in ("mfdcf", "popularity", "ridge"):
            for score, each in part.where(label=label).by("score"):
                found[label if score == "real" else f"{label}, {score}"] = each.mean("accuracy@10")
        found |= {
            peer: of_peers[name, user_ratings, peer, n]
            for peer in PEERS
            if (name, user_ratings, peer, n) in of_peers
        }
        thin = f", {user_ratings} ratings a user" if user_ratings else ""
        values = "; ".join(f"{method} {value:.4f}" for method, value in found.items())
        print(f"{name}{thin}, {n} given: {values}")


def first_events(folder: Path, seeds: range, of_peers: PeerAccuracies) -> Iterator[Row]:
    """Judge first ratings in order of time on MovieLens-100K: same people, same rest."""
    values = defaultdict(list)
    for seed in seeds:
        train, cold = split(folder, "ml-100k", 0, seed)
        score, popular = scorer(MFDCF().fit(train, seed=seed)), scorer(Popularity().fit(train))
        for n in (1, 5, 20):
            trial = make_trial(train, cold, n_given=n, order="time", seed=seed)
            values["ours", n].append(accuracy(score, trial))
            values["none", n].append(accuracy(score, replace(trial, history=None)))
            values["popularity", n].append(accuracy(popular, trial))
    mean = {key: float(np.mean(each)) for key, each in values.items()}
    what = "MovieLens-100K, in order of time"
    for n, target in ((1, ">= 1"), (5, ">= 1.03"), (20, ">= 1.06")):
        yield Row(f"{what}, {n} given / none given", mean["ours", n], mean["none", n], target)
    for n in (5, 20):
        of_peer = {peer: of_peers.get(("ml-100k", 0, peer, n), 0.0) for peer in PEERS}
        best = max(of_peer, key=lambda peer: of_peer[peer])
        peer = of_peer[best]
        yield Row(f"{what}, {n} given / {best}", mean["ours", n], peer, ">= 1.5", PEERS[best])
        popularity = mean["popularity", n]
        yield Row(f"{what}, {n} given / popularity", mean["ours", n], popularity, ">= 1.15")


def dislikes(folder: Path, sets: list[str], n_cases: int) -> Iterator[Row]:
    """Ask people about one item each that they rate below its mean, seen items kept in."""
    raised = not_raised = total = 0
    for name in sets:
        tell(f"dislikes: {name}")
        train, cold = split(folder, name, 0, seed=0)
        model = MFDCF().fit(train)
        counted = count_raised(model, train, cold, -(-n_cases // len(sets)))
        raised, not_raised, total = raised + counted[0], not_raised + counted[1], total + counted[2]
        with_them, without = [], []
        for n in (5, 20):
            protocol = "full" if name == "jester" else "sampled-1000"
            trial = make_trial(train, cold, protocol=protocol, n_given=n)
            liked = drop_dislikes(trial.given, item_means(train))
            score = scorer(model)
            with_them.append(accuracy(score, trial))
            without.append(accuracy(score, replace(trial, history=liked)))
        what = f"{name}, dislikes given / left out"
        yield Row(what, float(np.mean(with_them)), float(np.mean(without)), ">= 1")
    yield Row(f"disliked item raised, of {total:,}", raised, 1.0, "<= 0")
    yield Row("neighbours of a disliked item not raised, share", not_raised / total, 1.0, ">= 0.95")


def item_means(data: Dataset) -> np.ndarray:
    """Compute the mean rating of items; that of all where there is none."""
    ratings = data.ratings
    sums = np.bincount(ratings.matrix.indices, ratings.matrix.data, len(ratings.items))
    usual = ratings.matrix.data.mean()
    return np.where(ratings.per_item, sums / np.maximum(ratings.per_item, 1), usual)


def count_raised(
    model: Recommender, train: Dataset, cold: Dataset, n_cases: int
) -> tuple[int, int, int]:
    """Count disliked items that rise in rank, and those whose neighbours on average do not."""
    rng, means = np.random.default_rng(0), item_means(train)
    lowest = train.scale[0]
    items = rng.choice(np.flatnonzero((train.ratings.per_item > 0) & (means > lowest)), n_cases)
    ratings = rng.uniform(lowest, means[items]).astype(np.float32)
    if train.name != "jester":
        ratings = np.maximum(np.floor(ratings), lowest)  # whole stars
    near = {
        item: model.item_ids.rows(model.similar_items(model.item_ids[item], N_NEIGHBOURS).ids)
        for item in np.unique(items)
    }
    raised = not_raised = 0
    for start in range(0, n_cases, 256):
        own = items[start : start + 256]
        n, rows = len(own), np.arange(len(own))
        entries = (ratings[start : start + n], (rows, own))
        history = csr_array(entries, shape=(n, len(model.item_ids)))
        people = [{} for _ in rows]
        if cold.users.num_columns:
            people = cold.users.take(rng.integers(cold.n_users, size=n))
        before, after = (model.score(model.encode(people, each)) for each in (None, history))
        ranks = [(scores > scores[rows, own, None]).sum(axis=1) for scores in (before, after)]
        raised += int((ranks[1] < ranks[0]).sum())
        for row, item in enumerate(own):
            change = after[row, near[item]].mean() - before[row, near[item]].mean()
            not_raised += bool(change <= 1e-9)
    return raised, not_raised, n_cases


def drop_dislikes(given: csr_array, means: np.ndarray) -> csr_array:
    """Return a history without what was rated below the mean of the item."""
    keep = given.data >= means[given.indices]
    indptr = np.concatenate([[0], np.cumsum(keep)])[given.indptr]
    return csr_array((given.data[keep], given.indices[keep], indptr), shape=given.shape)


def dial(results: Results) -> Iterator[Row]:
    """Show what less popularity costs and brings for strangers on MovieLens-1M."""
    of_dial = results.where(label="dial", score="real", shots=0)
    for value, part in of_dial.by("popularity"):
        lists = part.mean("distinct_lists@10") * part.mean("cold_users")
        share, coverage = lists / part.mean("profiles"), part.mean("coverage@10")
        found = part.mean("accuracy@10")
        print(f"popularity {value}: accuracy {found:.4f}, coverage {coverage:.3f}, {share:.2f}")
        if value == 0.5:
            whole = of_dial.where(popularity=1.0).mean("accuracy@10")
            yield Row("popularity .5: distinct lists / profiles", share, 1.0, ">= 0.9")
            yield Row("popularity .5: coverage@10", coverage, 1.0, ">= 0.05")
            yield Row("popularity .5 / 1: accuracy@10, for information", found, whole, ">= 0")


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--runs", type=Path, help="keep the runs of the matrix here; resumes")
    options.add_argument("--splits", type=int, help="splits of the users; default: 5, quick: 1")
    options.add_argument("--sets", nargs="+", choices=SETS, default=SETS, help="default: all")
    args = options.parse_args()
    if args.data is None:
        sys.exit("say where the data sets are: --data FOLDER or COLDHASH_DATA")
    warnings.simplefilter("ignore")
    seeds = range(args.splits or (1 if args.quick else 5))
    plan = Experiment.from_toml(experiments_folder() / "anywhere.toml")
    with TemporaryDirectory() as temporary:
        plan = select(plan, args.sets, len(seeds))
        results, rows = matrix(plan, args.data, args.runs or Path(temporary))
    cases = [case for case in CASES if case[0] in args.sets]
    of_peers = all_peers(args.data, [case for case in cases if not (args.quick and case[1])], seeds)
    show_side_by_side(results, cases, of_peers)
    if "ml-100k" in args.sets:
        tell("first events in order of time")
        rows += first_events(args.data, seeds, of_peers)
    if rated := [name for name in RATED_SETS if name in args.sets]:
        rows += dislikes(args.data, rated, N_DISLIKES // 10 if args.quick else N_DISLIKES)
    rows += dial(results)
    tell("done")
    finish(rows, args.out)


if __name__ == "__main__":
    main()
