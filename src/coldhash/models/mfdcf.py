"""MFDCF: multi-feature discrete collaborative filtering, corrected where the print does not work.

Learns a code for every item, and for every group of user features a map into the same space, so
that a user whom nobody has seen has a vector, and by its signs a code, once anything is known.

    min  Σ_g 1/μ_g (‖H - X_g W_g‖² + ε‖W_g‖²) + α‖(S - H R' D') V½‖² + β‖B - H R'‖²
         + γ Σ_g ‖W_g V_g‖²                                                                    (9)

    here          paper         note
    S             S             targets times n_bits; unknown entries are 0
    H, B, D       Hᵀ, Bᵀ, Dᵀ    our rows are the paper's columns
    W_g, X_g      Wᵀ, Xᵀ        a user without group g is left out of its term
    V_g           V             the directions of W_g beyond the retained rank
    V½            -             weights of items by popularity; 1 in the paper
    ε             -             without it (14) is singular for one-hot features
    R             R             a gauge: (9) is the same for (H, W, V, R) and (HR', WR', VR', I)

Xu, Zhu, Cheng, Li and Sun, "Multi-Feature Discrete Collaborative Filtering for Fast Cold-start
Recommendation", AAAI 2020. Equation numbers are theirs; docs/paper.md says what is wrong in them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from coldhash.codes import signs
from coldhash.data.dataset import Dataset
from coldhash.encoders.consensus import ConsensusEncoder
from coldhash.errors import DataError, SettingError
from coldhash.features.fitting import fit_features
from coldhash.features.groups import Features
from coldhash.items import CodeItems
from coldhash.models.callbacks import Callback
from coldhash.models.diagnostics import Clock, code_report, warn_of_collapse
from coldhash.models.favourites import facts_of
from coldhash.models.history import fit_history
from coldhash.models.newcomers import fit_item_map
from coldhash.models.printed import ITEM_STEPS, ROTATIONS, random_rotation
from coldhash.models.problem import (
    Problem,
    item_weights,
    make_groups,
    make_strangers,
    make_target,
)
from coldhash.models.settings import check_settings
from coldhash.models.steps import (
    State,
    beyond_rank,
    codes,
    consensus,
    group_weights,
    item_side,
    loss,
    maps,
    misfit,
    set_items,
    start,
    strangers,
)
from coldhash.recommend import Recommender
from coldhash.targets import RatingTarget, TargetKind

FIRST_RIDGE = 30.0  # until it is chosen
SETTLED = 2  # the round by which H has settled enough to choose the ridge


@dataclass(frozen=True, kw_only=True)
class MFDCF:
    """Settings of the method; `fit` turns a data set into a `Recommender`."""

    n_bits: int = 64  # r
    fit_weight: float = 10.0  # α: how much ratings count
    code_weight: float = 10.0  # β: how hard user vectors are pulled to their codes
    rank_weight: float = 1.0  # γ: how much maps beyond the retained rank cost
    retained_rank: int | None = None  # k; None: half of the bits
    ridge: float | None = None  # ε; None: chosen by leave-one-out error, group by group
    n_rounds: int | None = None  # None: 8, and more for short codes, which cost little
    tolerance: float = 1e-5  # stop when a round lowers (9) by less than this share
    n_sweeps: int = 2  # of the item step
    target: TargetKind = "favourite"  # what a rating is worth; the paper's: "share"
    popularity_power: float = 0.5  # items weigh popularity ** this; the paper's: 0
    stranger_weight: float | None = None  # items' fit to strangers; None: .6 (.9 up to 16 bits)
    stranger_code_share: float | None = None  # of it by code; None: all (a third up to 16 bits)
    svd_rank: int | None = None  # o; None: S as it is
    rotation: str = "identity"  # or "mm", "alm": the printed steps for R
    rotation_weight: float = 1.0  # λ of the printed steps
    item_step: str = "descent"  # or "pinv-sign" (printed), "guarded"
    cold_rotation: bool = True  # False: codes of strangers without R, as printed

    def __post_init__(self) -> None:
        check_settings(
            self,
            n_bits=(1 <= self.n_bits <= 1024, "1 to 1024"),
            fit_weight=(self.fit_weight > 0, "above 0"),
            code_weight=(self.code_weight >= 0, "0 or more"),
            rank_weight=(self.rank_weight >= 0, "0 or more"),
            retained_rank=(
                self.retained_rank is None or 0 < self.retained_rank <= self.n_bits,
                "1 to n_bits",
            ),
            ridge=(self.ridge is None or self.ridge > 0, "above 0, or None to choose it"),
            n_rounds=(self.n_rounds is None or self.n_rounds >= 1, "1 or more"),
            tolerance=(self.tolerance >= 0, "0 or more"),
            n_sweeps=(self.n_sweeps >= 1, "1 or more"),
            stranger_weight=(
                self.stranger_weight is None or 0 <= self.stranger_weight < 1,
                "from 0 to below 1, or None",
            ),
            stranger_code_share=(0 <= (self.stranger_code_share or 0) <= 1, "from 0 to 1, or None"),
            svd_rank=(self.svd_rank is None or self.svd_rank >= 1, "1 or more, or None"),
            rotation=(self.rotation in ROTATIONS, f"one of {', '.join(ROTATIONS)}"),
            item_step=(self.item_step in ITEM_STEPS, f"one of {', '.join(ITEM_STEPS)}"),
        )

    def fit(
        self,
        data: Dataset,
        seed: int = 0,
        callback: Callback | None = None,
        item_codes: np.ndarray | None = None,
    ) -> Recommender:
        """Alternate the steps until (9) hardly falls; `callback` is told each round and (9).

        The start is random, or `item_codes` (items x bits).
        """
        if not len(data.ratings):
            raise DataError("there are no ratings to learn from")
        clock, rng = Clock(), np.random.default_rng(seed)
        with threadpool_limits(1, "blas"):  # the same sums in the same order everywhere
            encoder = fit_features(data, seed)
            features = encoder.apply(data.users, data.ratings.matrix)
            clock.mark("features")
            target = RatingTarget(self.target, data.ratings.scale[1])
            problem = self._problem(data, features, target, rng)
            clock.mark("prepare")
            problem, state, objective = self._alternate(
                problem, start(problem, self.n_bits, rng, item_codes), clock, rng, callback
            )
            state = state.folded(self.cold_rotation)
            content = None if encoder.preference is None else encoder.preference.main
            items = CodeItems.of(signs(state.D))
            history = fit_history(problem, state, target, data.ratings.matrix, items, content)
            clock.mark("history")
            assert encoder.content is not None
            made_of = encoder.content.apply(
                {name: data.items.column(name) for name in encoder.content.columns}, len(items)
            )
            item_map = fit_item_map(problem, state, made_of, data.ratings.matrix, target, rng)
            clock.mark("newcomers")
            unseen = strangers(problem, state)
            reports = {
                "user_codes": code_report(state.H),
                "item_codes": code_report(state.D),
                "stranger_codes": code_report(unseen),
                "warning": warn_of_collapse(unseen),
            }
            clock.mark("report")
        weights = {name: 1 / mu for name, mu in state.mu.items()}
        return Recommender(
            **facts_of(data),
            name="mfdcf",
            settings=asdict(self),
            features=encoder,
            encoder=ConsensusEncoder(
                {name: state.W[name] for name in problem.strangers},
                weights,
                state.H.mean(axis=0),
                history,
            ),
            items=items,
            item_map=item_map,
            user_vectors=state.H,
            report={
                "objective": objective,
                "seconds": clock.seconds,
                "group_weights": _shares(weights),
                "ridges": {name: group.ridge for name, group in problem.groups.items()},
            }
            | reports,
        )

    def _alternate(
        self,
        problem: Problem,
        state: State,
        clock: Clock,
        rng: np.random.Generator,
        callback: Callback | None,
    ) -> tuple[Problem, State, list[float]]:
        """Go round the steps: each lowers (9) over one block.

        Two things do not: strangers pull the item step elsewhere, and choosing the ridge changes
        (9) itself, once. With `stranger_weight=0` and a given ridge, (9) never rises.
        """
        rotate, improve = ROTATIONS[self.rotation], ITEM_STEPS[self.item_step]
        objective: list[float] = []
        if self.rotation != "identity":
            state.R = random_rotation(self.n_bits, rng)
        n_rounds = self.n_rounds or max(8, min(20, 160 // self.n_bits))
        for n in range(n_rounds):
            state.H = consensus(problem, state)  # (19)
            state.B = codes(state)  # (21)
            clock.mark("users")
            if self.ridge is None and n == min(SETTLED, n_rounds - 1):
                problem = problem.with_ridges(state.H @ _root(state.DtD), rng)
            misfits = self._fit_maps(problem, state)
            clock.mark("maps")
            rotate(problem, state, self.rotation_weight)  # (17), (24), (25)
            set_items(
                problem, state, improve(*item_side(problem, state), self.n_sweeps, rng)
            )  # (21)
            clock.mark("items")
            objective.append(loss(problem, state, misfits))
            clock.mark("objective")
            if callback is not None:
                callback(n, objective[-1])
            if n and abs(objective[-2] - objective[-1]) <= self.tolerance * abs(objective[-2]):
                break
        state.H = consensus(problem, state)
        self._fit_maps(problem, state)
        return problem, state, objective

    def _fit_maps(self, problem: Problem, state: State) -> dict[str, float]:
        state.W = maps(problem, state)  # (14)
        state.V = beyond_rank(problem, state)  # (23)
        misfits = {name: misfit(problem, state, name) for name in state.W}
        state.mu = group_weights(misfits)  # (12)
        return misfits

    def _problem(
        self, data: Dataset, features: Features, target: RatingTarget, rng: np.random.Generator
    ) -> Problem:
        ratings = data.ratings.matrix
        values = target(ratings.data)
        S = csr_array(
            (values * np.float32(self.n_bits), ratings.indices, ratings.indptr),
            shape=ratings.shape,
        )
        popularity = np.bincount(ratings.indices, values, minlength=ratings.shape[1])
        groups = make_groups(features, self.ridge or FIRST_RIDGE)
        short = self.n_bits <= 16  # too few bits to serve vectors and codes alike
        weights = item_weights(popularity, self.popularity_power)
        made = make_target(S, self.svd_rank, rng)
        return Problem(
            target=made,
            known=float(weights[:, 0] @ made.column_norms()),
            item_weights=weights,
            groups=groups,
            strangers=make_strangers(groups, rng),
            fit_weight=self.fit_weight,
            code_weight=self.code_weight,
            rank_weight=self.rank_weight,
            retained_rank=self.retained_rank or max(self.n_bits // 2, 1),
            stranger_weight=_default(self.stranger_weight, 0.9 if short else 0.6),
            stranger_code_share=_default(self.stranger_code_share, 1 / 3 if short else 1.0),
        )

    def recommend(self, *_: Any, **__: Any) -> None:
        """Say what to write instead: settings cannot recommend."""
        raise SettingError(
            "these are the settings of a model, not a fitted one",
            hint="model = MFDCF(...).fit(data); model.recommend(...)",
        )


def _root(G: np.ndarray) -> np.ndarray:
    """Find C with C C' = G: distances in H C are distances between predicted ratings."""
    lift = 1e-6 * np.trace(G) / len(G) * np.eye(len(G))
    return np.linalg.cholesky(G + lift).astype(np.float32)


def _default(setting: float | None, default: float) -> float:
    return default if setting is None else setting


def _shares(weights: dict[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}
