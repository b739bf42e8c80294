"""Compare models on the same cold users: bootstrap intervals, paired tests, a table of models.

The test pairs of one user depend on each other; users do not. The bootstrap therefore draws users
with replacement, each with all its pairs. A user who is cold in several splits is drawn once for
all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from coldhash.data.dataset import Dataset, Order, cold_user_splits
from coldhash.errors import DataError, check_choice, import_extra
from coldhash.evaluate.metrics import KS, judge
from coldhash.evaluate.protocol import Average, ScoreFunction, make_trial, scorer
from coldhash.files import Json
from coldhash.recommender.recommender import Score
from coldhash.registry import MODELS, Model
from coldhash.render import html_table, write_rows

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

LEVEL = 0.05  # of intervals and verdicts
JUDGED = "judged"  # what `judge_held_out` finds, in the report of a model
HELD_OUT = 0.2  # share of the users
N_GIVEN = 5  # ratings that people give first, where most have more than twice as many
_N_CHUNKS, _DRAWINGS_PER_CHUNK = 8, 250

Verdict = Literal["ahead", "behind", "tied"]


@dataclass(frozen=True, eq=False)
class UserHits:
    """Hits and test pairs of each cold user, for one model, one split and one k.

    Parameters
    ----------
    user_ids
        Ids of the users, each once.
    hits
        Expected number of hits of each user.
    pairs
        Number of test pairs of each user.

    Raises
    ------
    DataError
        If the arrays differ in length, an id is repeated, or there is no test pair.

    Examples
    --------
    >>> UserHits(np.array(["ann", "bob"]), hits=np.array([1.0, 0.0]), pairs=np.array([2, 1])).pairs
    array([2, 1])
    """

    user_ids: np.ndarray
    hits: np.ndarray
    pairs: np.ndarray

    def __post_init__(self) -> None:
        if not len(self.user_ids) == len(self.hits) == len(self.pairs):
            raise DataError("user_ids, hits and pairs differ in length")
        if len(set(map(str, self.user_ids))) < len(self.user_ids):
            raise DataError("a user appears twice in one split", hint="add up the pairs of a user")
        if not np.sum(self.pairs) > 0:
            raise DataError("a split has no test pair", hint="more users, or leave it out")


@dataclass(frozen=True)
class Interval:
    """A mean over splits with the bounds of its confidence interval.

    Examples
    --------
    >>> Interval(mean=0.2, low=0.15, high=0.25).low
    0.15
    """

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """The difference between two models, first minus second, with its confidence interval.

    Parameters
    ----------
    difference, low, high
        Mean difference and the bounds of its interval.
    verdict
        Whether the first model is "ahead" or "behind"; "tied" if the interval contains 0.
    p_value
        How likely such a difference is between models that are equally good, two-sided.

    Examples
    --------
    >>> Comparison(difference=0.02, low=-0.01, high=0.05, verdict="tied", p_value=0.2).verdict
    'tied'
    """

    difference: float
    low: float
    high: float
    verdict: Verdict
    p_value: float


@dataclass(frozen=True)
class ComparisonRow:
    """The results of one model at one number of given ratings.

    Parameters
    ----------
    model
        Name of the model.
    shots
        Ratings that each cold user gave first.
    metrics
        Means over splits of the metrics of `Judgement`.
    accuracy
        Accuracy@k with ties and averages as the protocol counts them.
    verdict
        How the first model compares with this one; None for the first model itself. All verdicts
        of a table hold together at 95%, by Holm's correction.

    Examples
    --------
    >>> row = ComparisonRow("ridge", 0, {"mrr": 0.3}, Interval(0.2, 0.15, 0.25), verdict="ahead")
    >>> row.accuracy.mean
    0.2
    """

    model: str
    shots: int
    metrics: dict[str, float]
    accuracy: Interval
    verdict: Verdict | None


@dataclass(frozen=True)
class ComparisonTable:
    """What `compare_models` found: a row for each model and number of given ratings.

    Parameters
    ----------
    k
        Length of the list for intervals and verdicts.
    rows
        The results.
    order
        How given ratings were chosen: by "time" or at "random"; None if none was given.

    Examples
    --------
    >>> row = ComparisonRow("ridge", 0, {"mrr": 0.3}, Interval(0.2, 0.15, 0.25), verdict=None)
    >>> ComparisonTable(k=10, rows=(row,)).rows[0].model
    'ridge'
    """

    k: int
    rows: tuple[ComparisonRow, ...]
    order: Order | None = None

    @property
    def correction(self) -> str:
        """A sentence on the correction for several comparisons; empty for a single one."""
        compared = sum(row.verdict is not None for row in self.rows)
        return f"{compared} comparisons, corrected by Holm's method" if compared > 1 else ""

    def __str__(self) -> str:
        lines = [
            f"{'method':12} {'given':>5} {'accuracy':>9} {'between':>17} {'ndcg':>7}"
            f" {'coverage':>9}  {self.rows[0].model} is"
        ]
        for row in self.rows:
            accuracy, metrics = row.accuracy, row.metrics
            lines.append(
                f"{row.model:12} {row.shots:>5} {accuracy.mean:9.4f} {accuracy.low:8.4f}"
                f" {accuracy.high:8.4f} {metrics[f'ndcg@{self.k}']:7.4f}"
                f" {metrics['coverage@10']:9.3f}  {row.verdict or ''}"
            )
        legend = f"accuracy and ndcg at {self.k}; between: 95% interval, resampled over users"
        order = f"given: first ratings, order: {self.order}" if self.order else ""
        return "\n".join(filter(None, [*lines, legend, self.correction, order]))

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas frame.

        Returns
        -------
        pandas.DataFrame
            A row for each model and number of given ratings: model, shots, verdict, the accuracy
            (mean, low, high), and a column for each metric.

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        import pandas

        return pandas.DataFrame(self._records())

    def plot(self) -> Figure:
        """Draw the accuracy of each model with its interval.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        SettingError
            matplotlib is not installed.
        """
        import_extra("matplotlib", "plots")
        from matplotlib.figure import Figure

        figure = Figure(layout="constrained")
        axes = figure.subplots()
        for shots in dict.fromkeys(row.shots for row in self.rows):
            rows = [row for row in self.rows if row.shots == shots]
            mean, low, high = np.array([astuple(row.accuracy) for row in rows]).T
            names = [row.model for row in rows]
            axes.errorbar(mean, names, xerr=[mean - low, high - mean], fmt="o", label=shots)
        axes.set_xlabel(f"accuracy@{self.k} and its 95% interval")
        axes.legend(title="ratings given")
        return figure

    def save(self, path: str | Path) -> None:
        """Write the columns of `to_pandas`.

        Parameters
        ----------
        path
            A file that ends in .csv or .md.

        Raises
        ------
        SettingError
            The name has another ending.
        SourceError
            The file cannot be written.
        """
        write_rows(self._records(), path)

    def _records(self) -> list[dict[str, object]]:
        return [
            {"model": row.model, "shots": row.shots, "verdict": row.verdict}
            | asdict(row.accuracy)
            | row.metrics
            for row in self.rows
        ]

    def _repr_html_(self) -> str:
        records = self._records()
        return html_table([records[0], *(each.values() for each in records)]) + self.correction


def compare_models(
    data: Dataset,
    models: Mapping[str, Model | ScoreFunction],
    *,
    splits: int = 5,
    share: float = 0.2,
    shots: Sequence[int] = (0,),
    order: Order | None = None,
    protocol: str = "sampled-1000",
    score: Score = "real",
    k: int = 10,
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> ComparisonTable:
    """Fit every model on every split and judge it on the same users and candidates.

    Parameters
    ----------
    data
        Ratings and features.
    models
        Settings of the models by name; the first one is compared with each of the others. A
        function of people (a table) and their ratings (people x items, or None) that returns
        scores (people x items) is used as it is, on every split: what it has learned from cold
        users, it knows.
    splits
        Number of random splits.
    share
        Share of the users that are cold in a split.
    shots
        Numbers of ratings that a cold user gives first.
    order
        Give the first ratings by "time", or a "random" choice; None: by time where times are known.
    protocol
        A key of `PROTOCOLS`.
    score
        "real", or "hamming" to compare codes with codes.
    k
        Length of the list for intervals and verdicts.
    seed
        Seed of the first split; each further split adds 1.
    progress
        Called with fits done, fits in all, and a description of the last fit.

    Returns
    -------
    ComparisonTable

    Raises
    ------
    SettingError
        If the protocol is unknown or a model cannot be scored in that way.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> from coldhash.registry import MODELS
    >>> models = {"mfdcf": MFDCF(n_bits=32), "popularity": MODELS["popularity"]()}
    >>> table = compare_models(read("sample", n_users=500, n_items=200), models, splits=2)
    >>> [(row.model, row.verdict) for row in table.rows]  # mfdcf is ahead of popularity
    [('mfdcf', None), ('popularity', 'ahead')]
    """
    metrics, hits = defaultdict(list), defaultdict(list)  # by model and ratings given
    ks = tuple(sorted({*KS, k}))
    for number, (train, cold) in enumerate(cold_user_splits(data, share, seed, splits)):
        draw = partial(make_trial, train, cold, protocol=protocol, order=order, seed=seed + number)
        trials = {n: draw(n_given=n) for n in shots}
        user_ids = np.array(list(cold.ratings.users), dtype=object)
        for place, (name, settings) in enumerate(models.items(), 1):
            fit = getattr(settings, "fit", None)
            scores: Any = settings if fit is None else scorer(fit(train, seed + number), score)
            for n, trial in trials.items():
                judged = judge(scores, trial, ks)
                expected = trial.protocol.ties == "expected"
                own = judged.hits if expected else judged.hits_optimistic
                metrics[name, n].append(judged.metrics)
                hits[name, n].append(UserHits(user_ids, own[:, ks.index(k)], judged.pairs))
            if progress is not None:
                done = number * len(models) + place
                progress(done, splits * len(models), f"{name}, split {number}")

    last = trials[max(shots)]
    first, average = next(iter(models)), last.protocol.average
    others = [key for key in hits if key[0] != first]
    pairs = [compare(hits[first, n], hits[name, n], average) for name, n in others]
    holds = is_significant([pair.p_value for pair in pairs])
    verdicts: dict[tuple[str, int], Verdict] = {
        key: pair.verdict if certain else "tied"
        for key, pair, certain in zip(others, pairs, holds, strict=True)
    }
    rows = []
    for key, found in metrics.items():
        means = {name: float(np.mean([each[name] for each in found])) for name in found[0]}
        rows.append(ComparisonRow(*key, means, interval(hits[key], average), verdicts.get(key)))
    return ComparisonTable(k, tuple(rows), last.order)


def judge_held_out(data: Dataset, settings: Model, seed: int = 0) -> dict[str, Json]:
    """Judge settings and popularity on users that are held out, and describe what was found.

    A model is fitted on the other users, so the figure is that of the settings, not of the model
    that is then fitted on all users.

    Parameters
    ----------
    data
        Ratings and features.
    settings
        Settings of a method.
    seed
        Seed of the split and of the fit.

    Returns
    -------
    dict
        The number of held-out `users`; `k`; and `rows`, for each number of ratings `given` the
        Accuracy@k of the `model` and of `popularity` with 95% intervals, and whether the model is
        "ahead", "tied" or "behind".

    Raises
    ------
    DataError
        There are too few users or favourites to judge by.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> found = judge_held_out(read("sample", n_users=500, n_items=200), MFDCF(n_bits=32))
    >>> found["users"], [row["given"] for row in found["rows"]]
    (100, [0, 5])
    """
    shots = (0, N_GIVEN) if np.median(data.ratings.per_user) > 2 * N_GIVEN else (0,)
    models = {"model": settings, "popularity": MODELS["popularity"]()}
    found = compare_models(data, models, splits=1, share=HELD_OUT, shots=shots, seed=seed)
    rows: list[Json] = []
    for own, other in zip(found.rows, found.rows[len(shots) :], strict=False):
        accuracy = {row.model: asdict(row.accuracy) for row in (own, other)}
        rows.append({"given": own.shots} | accuracy | {"verdict": other.verdict})
    return {"users": int(found.rows[0].metrics["users"]), "k": found.k, "rows": rows}


def interval(splits: Sequence[UserHits], average: Average = "pairs") -> Interval:
    """Compute the mean over splits of hits / pairs with its 95% bootstrap interval.

    Parameters
    ----------
    splits
        Hits of one model, split by split.
    average
        Pool the "pairs", or average over "users".

    Returns
    -------
    Interval

    Raises
    ------
    DataError
        If there is no split, or too few users.
    SettingError
        If `average` is unknown.

    Examples
    --------
    >>> users = np.arange(100)
    >>> hits = UserHits(users, hits=(users % 4 == 0).astype(float), pairs=np.ones(100))
    >>> found = interval([hits])
    >>> found.mean, found.low < 0.25 < found.high
    (0.25, True)
    """
    hits, pairs = arrange(splits)
    found = _bootstrap(hits, pairs, average)
    return Interval(found.difference, found.low, found.high)


def compare(
    first: Sequence[UserHits], second: Sequence[UserHits], average: Average = "pairs"
) -> Comparison:
    """Compare two models on the same users, pair by pair.

    Parameters
    ----------
    first, second
        Hits of the two models, split by split, on the same users and pairs.
    average
        As for `interval`.

    Returns
    -------
    Comparison

    Raises
    ------
    DataError
        If the models were not judged on the same users and pairs.
    SettingError
        If `average` is unknown.

    Examples
    --------
    >>> users = np.arange(100)
    >>> often = UserHits(users, hits=(users % 2 == 0).astype(float), pairs=np.ones(100))
    >>> rarely = UserHits(users, hits=(users % 4 == 0).astype(float), pairs=np.ones(100))
    >>> compare([often], [rarely]).verdict, compare([often], [often]).verdict
    ('ahead', 'tied')
    """
    hits, pairs = arrange([*first, *second])
    n = len(first)
    if not np.array_equal(pairs[:, :n], pairs[:, n:]):
        hint = "judge both models on the same trials"
        raise DataError("the splits of the two models differ in users or pairs", hint=hint)
    return _bootstrap(hits[:, :n] - hits[:, n:], pairs[:, :n], average)


def is_significant(p_values: Sequence[float]) -> list[bool]:
    """Mark the differences that hold together at 95%, by Holm's step-down correction."""
    significant = [False] * len(p_values)
    for place, at in enumerate(np.argsort(p_values, kind="stable")):
        if p_values[at] * (len(p_values) - place) > LEVEL:
            break
        significant[at] = True
    return significant


def arrange(splits: Sequence[UserHits]) -> np.ndarray:
    """Arrange hits and pairs as 2 x users x splits; users are in the order of their ids."""
    if not splits:
        raise DataError("no split to compute an interval from")
    every = sorted({str(user_id) for split in splits for user_id in split.user_ids})
    rows = {user_id: row for row, user_id in enumerate(every)}
    arranged = np.zeros((2, len(rows), len(splits)))
    for column, split in enumerate(splits):
        own = [rows[str(user_id)] for user_id in split.user_ids]
        arranged[:, own, column] = split.hits, split.pairs
    return arranged


def _bootstrap(hits: np.ndarray, pairs: np.ndarray, average: Average) -> Comparison:
    """Compare the mean over splits of hits / pairs with 0."""
    check_choice("average", average, get_args(Average))
    if average == "users":
        hits, pairs = hits / np.maximum(pairs, 1), (pairs > 0).astype(np.float64)
    columns = np.hstack([pairs, hits])
    drawn = np.vstack([weights @ columns for weights in _draw_weights(len(hits))])
    totals, found = np.hsplit(drawn, 2)
    complete = (totals > 0).all(axis=1)  # a drawing may miss every user of a small split
    if not complete.any():
        raise DataError("too few users to draw from", hint="take more users, or fewer splits")
    means = (found[complete] / totals[complete]).mean(axis=1)
    low, high = np.quantile(means, [LEVEL / 2, 1 - LEVEL / 2])
    mean = (hits.sum(axis=0) / pairs.sum(axis=0)).mean()
    beyond = min((means <= 0).sum(), (means >= 0).sum())
    p_value = float(min(1, 2 * beyond / len(means)))
    verdict: Verdict = "ahead" if low > 0 else "behind" if high < 0 else "tied"
    return Comparison(float(mean), float(low), float(high), verdict, p_value)


def _draw_weights(n_users: int) -> Iterator[np.ndarray]:
    """Draw users with replacement and yield how often each was drawn, chunk by chunk."""
    rng, n = np.random.default_rng(0), _DRAWINGS_PER_CHUNK
    for _ in range(_N_CHUNKS):
        places = rng.integers(n_users, size=(n, n_users)) + n_users * np.arange(n)[:, None]
        counted = np.bincount(places.ravel(), minlength=n * n_users)
        yield counted.reshape(n, n_users).astype(np.float64)
