"""MFDCF: multi-feature discrete collaborative filtering, corrected where the print does not work.

Learns a code for every item, and for every group of user features a map into the same space, so
that a user whom nobody has seen has a vector, and by its signs a code, once anything is known.

    min  Σ_g 1/μ_g (‖H - X_g W_g‖² + ε_g‖W_g‖²) + α‖(T - H D') V½‖² + β‖s B - H‖²
         + γ Σ_g ‖W_g V_g‖²                                                                    (9)

An item has a level beside its code: the share p of users whose favourite it is. What a person is
expected to make of it is p + √p (h·d), popularity where nothing is known of the person, so that
T = (S - 1m') / √p is left for vectors and codes: how people differ. Items are ranked by a score
between that and its root, about √p + h·d/2; see docs/method.md. `level=False` has T = S and the
score h·d, as the paper.

    here          paper         note
    T             S             targets around their means; unknown entries of S are 0
    H, B, D       Hᵀ, Bᵀ, Dᵀ    our rows are the paper's columns
    W_g, X_g      Wᵀ, Xᵀ        a user without group g is left out of its term
    V_g           V             the directions of W_g beyond the retained rank
    V½            -             weights of items by popularity; 1 in the paper
    s             -             the length of a coordinate of H; 1 in the paper
    ε             -             without it (14) is singular for one-hot features
    -             R             a gauge: (9) is the same for (H, W, V, R) and (HR', WR', VR', I)

Xu, Zhu, Cheng, Li and Sun, "Multi-Feature Discrete Collaborative Filtering for Fast Cold-start
Recommendation", AAAI 2020. Equation numbers are theirs; docs/method.md says what is wrong in them.
`coldhash.lab.printed` has the method as printed.
"""

from __future__ import annotations

import shutil
import time
import warnings
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from coldhash.arrays.codes import pack, signs
from coldhash.arrays.threads import one_blas_thread, run_pieces
from coldhash.data.dataset import Dataset
from coldhash.data.ratings import RatingTarget, TargetKind
from coldhash.errors import CodeCollapse, DataError, SettingError, check_types
from coldhash.features.fitting import learn_features
from coldhash.features.groups import FeatureEncoder
from coldhash.mfdcf import equations
from coldhash.mfdcf.equations import FIRST_RIDGE, FitState
from coldhash.mfdcf.history import fit_answers, fit_history
from coldhash.mfdcf.items import descend
from coldhash.mfdcf.problem import (
    REPORTED,
    Group,
    Level,
    Problem,
    fit_preference,
    item_weights,
    make_blocks,
)
from coldhash.partitions import Partitions
from coldhash.recommender import model_file
from coldhash.recommender.encoders import ConsensusEncoder
from coldhash.recommender.items import CodeItems
from coldhash.recommender.recommender import Recommender
from coldhash.scale import Prepared, open_partitions
from coldhash.scale.places import Place

Callback = Callable[[int, float], None]  # called with the round, from 0, and the objective after it

COLLAPSED = 0.05  # distinct codes per distinct profile
LEVEL_BITS = 8
REPORTS = ("user_codes", "item_codes", "stranger_codes")
OTHER = 0.3  # what a rating that is no favourite is worth, where ratings are rare


@dataclass(frozen=True, kw_only=True)
class MFDCF:
    """Settings of the method; `fit` turns a data set into a `Recommender`.

    Parameters
    ----------
    n_bits
        Bits an item takes: 8 for its level, if it has one, and the rest for its code.
    level
        Give every item a level, what it is worth to the average person; False: the method of the
        paper, in which codes have to reproduce popularity.
    fit_weight
        How much ratings count (α); None: by how noisy user vectors are, or 10 without a level.
    code_weight
        How hard user vectors are pulled to their codes (β).
    rank_weight
        How much maps beyond the retained rank cost (γ).
    retained_rank
        Rank of the maps that costs nothing (k); None: half of the bits.
    ridge
        Ridge of the maps (ε); None: chosen by leave-one-out error, group by group, and with a
        level by the relevance of each feature.
    n_rounds
        Rounds at most; None: 8, and more for short codes, which cost little.
    tolerance
        Stop when a round changes (9) by less than this share of what all rounds but the first have.
    n_sweeps
        Sweeps of the item step over all bits.
    target
        What a rating is worth: 1 for a favourite and up to .3 for any other ("favourite"), its
        share of the highest rating ("share", as in the paper), or 1 for every rating ("known").
    popularity_power
        Items weigh popularity to this power; 0 in the paper. None: .75, or .5 without a level.
    stranger_weight
        Weight of strangers in the item step; None: .6, or .9 up to 16 bits, and more where most
        users have few ratings.
    stranger_code_share
        Share of it that strangers have by their codes; None: all, or a third up to 16 bits.

    Examples
    --------
    >>> from coldhash import read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100), seed=0)
    >>> model.name, model.bytes_per_item, len(model.recommend({"age": 30}, k=5))
    ('mfdcf', 4, 5)
    """

    n_bits: Annotated[int, Field(ge=1, le=1024)] = 64
    level: bool = True
    fit_weight: PositiveFloat | None = None
    code_weight: NonNegativeFloat = 0.1
    rank_weight: NonNegativeFloat = 1.0
    retained_rank: PositiveInt | None = None
    ridge: PositiveFloat | None = None
    n_rounds: PositiveInt | None = None
    tolerance: NonNegativeFloat = 0.01
    n_sweeps: PositiveInt = 2
    target: TargetKind = "favourite"
    popularity_power: float | None = None
    stranger_weight: Annotated[float, Field(ge=0, lt=1)] | None = None
    stranger_code_share: Annotated[float, Field(ge=0, le=1)] | None = None

    takes_new_items = True  # codes of new items can be made from content or ratings: see update/

    def __post_init__(self) -> None:
        check_types(self)
        if self.n_code_bits < 1:
            hint = f"more than {LEVEL_BITS}, which are for the level"
            raise SettingError(f"{type(self).__name__}: n_bits={self.n_bits}", hint=hint)
        if (self.retained_rank or 1) > self.n_code_bits:
            message = f"{type(self).__name__}: retained_rank={self.retained_rank}"
            raise SettingError(message, hint="1 to the length of codes")

    def fit(
        self,
        data: Dataset | Prepared,
        seed: int = 0,
        callback: Callback | None = None,
        *,
        on: Place = None,
        item_codes: np.ndarray | None = None,
    ) -> Recommender:
        """Alternate the steps until (9) hardly falls.

        Parameters
        ----------
        data
            A data set, or a folder of partitions that `prepare` made.
        seed
            Seed of everything that is drawn.
        callback
            Called with the number of each round and the objective (9) / α after it.
        on
            Where the partitions of users are: None (in memory; a prepared folder is streamed),
            `Memory()`, `Disk(folder)`, or a `dask.distributed.Client`. It changes no bit of the
            codes.
        item_codes
            Codes to start from (items x bits, +1 and -1); None: random ones.

        Returns
        -------
        Recommender
            The fitted model.

        Raises
        ------
        DataError
            There are no ratings, or no training user has any feature.
        """
        rounds, rng = Rounds(callback), np.random.default_rng(seed)
        with one_blas_thread(), open_partitions(data, on) as users:
            if not data.n_ratings:
                raise DataError("there are no ratings to learn from")
            encoder = learn_features(users, data.plan, data.items)
            rounds.mark("features")
            problem = self._prepare(users, data, encoder, seed)
            rounds.mark("prepare")
            D = self._first_codes(problem, rng, item_codes)
            rounds.path = None if users.folder is None else users.folder / "checkpoint"
            rounds.identity = self._identify(problem, D, seed)
            problem, state = self._alternate(problem, D, rounds, rng)
            length, strangers = equations.summarise_strangers(problem, state)
            popularity = problem.sums.favourites.astype(np.float32)
            items = CodeItems.of_codes(signs(state.D), popularity, *problem.level.tables(length))
            history = fit_history(problem, state, items)
            answers = fit_answers(problem, state, history)
            rounds.mark("history")
            user_vectors = users.gather(state.H, problem.n_users, self.n_code_bits)
            seen = data.seen(users.allocate)
            rounds.clear()
            weights = {name: 1 / mu for name, mu in state.mu.items()}
            maps = {name: state.W[name] for name in problem.groups_of_strangers}
            vectors = (user_vectors, state.D, strangers)
            report = {
                "objective": rounds.objective,
                "seconds": rounds.seconds,
                "group_weights": {name: w / sum(weights.values()) for name, w in weights.items()},
                "ridges": {name: group.ridge for name, group in problem.groups.items()},
                "history_counts": history.counts.tolist(),
                **dict(zip(REPORTS, run_pieces(code_report, vectors), strict=True)),
                "warning": warn_of_collapse(strangers),
            }
            rounds.mark("report")
        return Recommender(
            name="mfdcf",
            settings=asdict(self),
            features=encoder,
            encoder=ConsensusEncoder(maps, weights, state.average, history, answers),
            item_ids=data.item_ids,
            items=items,
            popularity=popularity,
            scale=data.scale,
            feedback=data.feedback,
            user_ids=data.user_ids,
            user_vectors=user_vectors,
            seen=seen,
            item_table=data.items,
            columns=data.columns,
            report=report,
        )

    def _alternate(
        self, problem: Problem, D: np.ndarray, rounds: Rounds, rng: np.random.Generator
    ) -> tuple[Problem, FitState]:
        """Go round the steps: each lowers (9) over one block of variables.

        Some things do not: strangers pull the item step elsewhere, it does not see the users who
        are held out, and learning α changes (9) itself. Without these, and with one group, (9)
        never rises.
        """
        state = equations.start(problem, D)
        if self.ridge is None:
            problem = equations.choose_ridges(problem, state, rng)
        rounds.resume(problem, state, rng)
        while not self._settled(rounds.objective):
            equations.update_maps(problem, state)  # (14), (23)
            equations.update_vectors(problem, state)  # (19), (21), (12)
            rounds.mark("users")
            L, G = equations.item_problem(problem, state)
            D = descend(state.D, L, G, self.n_sweeps, rng)  # (21)
            equations.set_items(problem, state, D)
            rounds.mark("items")
            loss = equations.objective(problem, state)  # (9)
            rounds.mark("objective")
            rounds.end(loss, state, rng)
        equations.update_maps(problem, state)
        equations.update_vectors(problem, state)
        return problem, state

    @property
    def n_code_bits(self) -> int:
        """The length of codes (r)."""
        return self.n_bits - LEVEL_BITS * self.level

    def _settled(self, losses: list[float]) -> bool:
        n_rounds = self.n_rounds or max(8, min(20, 160 // self.n_code_bits))
        if len(losses) < 3 or len(losses) >= n_rounds:
            return len(losses) >= n_rounds
        first, (before, after) = losses[0], losses[-2:]
        return abs(before - after) <= self.tolerance * abs(first - after)

    def _first_codes(
        self, problem: Problem, rng: np.random.Generator, item_codes: np.ndarray | None
    ) -> np.ndarray:
        shape = (len(problem.item_weights), self.n_code_bits)
        if item_codes is None:
            return rng.integers(0, 2, size=shape).astype(np.float32) * 2 - 1
        if item_codes.shape != shape:
            message = f"item_codes of shape {item_codes.shape}"
            raise SettingError(message, hint=f"items x bits: {shape}")
        return item_codes

    def _identify(self, problem: Problem, D: np.ndarray, seed: int) -> dict[str, object]:
        """Identify the fit: by its settings, and by what its data and its first codes add up to."""
        counts = {name: group.counts for name, group in problem.groups.items()}
        start = zlib.crc32(np.packbits(D > 0).tobytes())
        facts = {"seed": seed, "known": problem.known, "groups": counts, "start": start}
        return {"settings": asdict(self)} | facts

    def _prepare(
        self, users: Partitions, data: Dataset | Prepared, encoder: FeatureEncoder, seed: int
    ) -> Problem:
        """Prepare every partition, and choose the settings that depend on the data."""
        n_users, n_items = data.n_users, len(data.item_ids)
        # what is rated but no favourite says less, the more of everything is rated
        other = OTHER * (1 - data.n_ratings / (n_users * n_items))
        target = RatingTarget(self.target, data.feedback, other)
        preference = None
        if data.plan.preference is not None and not self.level:
            width = data.plan.preference.max_width
            content = encoder.item_content(data.items, n_items)
            preference = fit_preference(users, content, data.scale, width, seed)
        blocks, sums, grams, counts = make_blocks(users, encoder, preference, target, n_users)
        groups = {
            name: Group(
                gram=gram,
                relevance=np.ones((len(gram), 1)),
                ridge=self.ridge or FIRST_RIDGE,
                counts=counts[name],
                columns=encoder.groups[name].owners if self.level else None,
            )
            for name, gram in grams.items()
            if any(counts[name])
        }
        strangers = tuple(name for name in encoder.groups if name in groups)
        if not strangers and not self.level:
            hint = "give a user table, or level=True"
            raise DataError("no training user has any feature", hint=hint)
        short = self.n_code_bits <= 16  # too few bits to serve vectors and codes alike
        # users with few ratings are nearly strangers
        known = sums.known / n_users if self.level else 1.0
        power = _default(self.popularity_power, 0.75 if self.level else 0.5)
        weights = item_weights(sums.targets, power)
        level = Level.of(sums, n_users) if self.level else Level.none(n_items)
        gains, means = level.gains[:, 0].astype(np.float64), level.means[:, 0].astype(np.float64)
        # Σ_u T² of each item
        norms = (sums.norms - 2 * means * sums.targets + n_users * means**2) / gains**2
        return Problem(
            users=users,
            n_users=n_users,
            blocks=blocks,
            target=target,
            sums=sums,
            known=float(weights[:, 0] @ norms),
            item_weights=weights,
            level=level,
            noise=(norms / n_users).astype(np.float32)[:, None],
            groups=groups,
            groups_of_strangers=strangers,
            fit_weight=self.fit_weight or (None if self.level else 10.0),
            code_weight=self.code_weight,
            rank_weight=self.rank_weight,
            retained_rank=self.retained_rank or max(self.n_code_bits // 2, 1),
            stranger_weight=_default(self.stranger_weight, 1 - known * (0.1 if short else 0.4)),
            stranger_code_share=_default(self.stranger_code_share, 1 / 3 if short else 1.0),
        )

    def recommend(self, *_: object, **__: object) -> None:
        """Raise an error: only the model that `fit` returns can recommend.

        Parameters
        ----------
        *_, **__
            Ignored.

        Raises
        ------
        SettingError
            Always; the hint shows the correct call.
        """
        raise SettingError(
            "these are the settings of a model, not a fitted one",
            hint="model = MFDCF(...).fit(data); model.recommend(...)",
        )


def _default(setting: float | None, default: float) -> float:
    return default if setting is None else setting


class Rounds:
    """The rounds of one fit: objective, seconds by step, and a checkpoint of the last round.

    The checkpoint is a file in the layout of model files, replaced in one step; without a path,
    nothing is kept. `identity` is what tells fits apart: settings, seed, and what the data add up
    to.
    """

    def __init__(self, callback: Callback | None) -> None:
        self.objective: list[float] = []
        self.seconds: dict[str, float] = {}
        self.path: Path | None = None
        self.identity: dict[str, object] = {}
        self._callback, self._last = callback, time.perf_counter()

    def mark(self, step: str) -> None:
        """Book the time since the last mark on a step."""
        now = time.perf_counter()
        self.seconds[step] = self.seconds.get(step, 0.0) + now - self._last
        self._last = now

    def end(self, objective: float, state: FitState, rng: np.random.Generator) -> None:
        """Keep what the next round needs of this one, and pass the objective to the callback."""
        self.objective.append(objective)
        if self.path is not None:
            arrays = {"D": state.D.astype(np.int8), "average": state.average}
            arrays |= {f"V/{name}": V for name, V in state.V.items() if V is not None}
            arrays |= {f"B/{at:08}": part for at, part in enumerate(state.codes)}
            facts = {
                "identity": self.identity,
                "mu": state.mu,
                "alpha": state.alpha,
                "length": state.length,
                "objective": self.objective,
                "rng": rng.bit_generator.state,
            }
            model_file.write(self.path, facts, arrays)
        if self._callback is not None:
            self._callback(len(self.objective) - 1, objective)

    def resume(self, problem: Problem, state: FitState, rng: np.random.Generator) -> None:
        """Go to the end of the last complete round, if one was kept."""
        if self.path is None or not self.path.exists():
            return
        facts, arrays = model_file.read(self.path)
        if facts.get("identity") != self.identity:
            raise SettingError(
                f"{self.path} was left by a fit with other settings or other data",
                hint="remove it, or give this fit another folder to work in",
            )
        codes = [arrays[name] for name in sorted(arrays) if name.startswith("B/")]
        state.B, state.average = problem.users.scatter(codes), arrays["average"]
        state.V = {name: arrays.get(f"V/{name}") for name in problem.groups}
        state.mu, state.alpha, state.length = facts["mu"], facts["alpha"], facts["length"]
        equations.set_items(problem, state, arrays["D"].astype(np.float32))
        rng.bit_generator.state, self.objective = facts["rng"], facts["objective"]

    def clear(self) -> None:
        """Remove the file, and drafts of it that killed fits left: the folder is this fit's own."""
        if self.path is not None:
            for draft in self.path.parent.glob(f".{self.path.name}.*.part"):
                shutil.rmtree(draft)
            self.path.unlink(missing_ok=True)


def code_report(vectors: np.ndarray) -> dict[str, Any]:
    """Describe the codes of vectors: how many differ, how balanced and how alike the bits are."""
    codes = signs(vectors[:REPORTED], np.float32)
    mean, n_bits = codes.mean(axis=0, dtype=np.float64), codes.shape[1]
    # sums of +1 and -1 are exact in float32, so they do not depend on the order of the product
    covariance = (codes.T @ codes).astype(np.float64) / max(len(codes), 1) - np.outer(mean, mean)
    spread = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    correlation = np.abs(covariance / np.outer(spread, spread))
    others = correlation.sum() - np.trace(correlation)
    return {
        "distinct": n_distinct(pack(codes)),
        "of": len(codes),
        "mean_imbalance": float(np.abs(mean).mean()),
        "mean_correlation": float(others / max(n_bits * (n_bits - 1), 1)),
    }


def n_distinct(rows: np.ndarray) -> int:
    """Count the rows that differ."""
    rows = np.ascontiguousarray(rows)
    return len(set(rows.view(f"V{rows.strides[0]}").ravel().tolist()))


def warn_of_collapse(stranger_vectors: np.ndarray) -> str | None:
    """Warn if people who differ get the same code: by Hamming they get the same list."""
    profiles = n_distinct(stranger_vectors[:REPORTED])
    distinct = n_distinct(pack(signs(stranger_vectors[:REPORTED])))
    if profiles < 20 or distinct >= COLLAPSED * profiles:
        return None
    message = (
        f"{profiles:,} different profiles of strangers have only {distinct:,} codes; "
        "hint: score='real' tells them apart, or use more bits"
    )
    warnings.warn(message, CodeCollapse, stacklevel=5)
    return message
