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
from threadpoolctl import threadpool_limits

from coldhash.arrays.codes import signs
from coldhash.data.dataset import Dataset
from coldhash.data.targets import RatingTarget, TargetKind
from coldhash.errors import DataError, SettingError
from coldhash.features.fitting import learn_features
from coldhash.features.groups import FeatureEncoder
from coldhash.lab.printed import ITEM_STEPS, ROTATIONS, random_rotation
from coldhash.mfdcf.history import fit_history
from coldhash.mfdcf.local import FIRST_VECTORS, VECTORS
from coldhash.mfdcf.new_items import fit_item_map
from coldhash.mfdcf.problem import (
    PREPARE,
    Problem,
    best_ridges,
    draw_strangers,
    item_weights,
    make_groups,
    truncate,
)
from coldhash.mfdcf.report import ENOUGH, Clock, code_report, warn_of_collapse
from coldhash.mfdcf.run import Run
from coldhash.mfdcf.steps import (
    State,
    beyond_rank,
    consensus,
    fold,
    group_weights,
    item_side,
    loss,
    maps,
    misfits,
    set_items,
    start,
)
from coldhash.partitions import Partitions, added
from coldhash.recommender.callbacks import Callback
from coldhash.recommender.encoders.consensus import ConsensusEncoder
from coldhash.recommender.items import CodeItems
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import check_settings, check_types
from coldhash.scale.prepared import Prepared
from coldhash.scale.training import Crowd, gathered, opened

FIRST_RIDGE = 30.0  # until it is chosen
SETTLED = 2  # the round by which H has settled enough to choose the ridge


@dataclass(frozen=True, kw_only=True)
class MFDCF:
    """Settings of the method; `fit` turns a data set into a `Recommender`.

    Examples
    --------
    >>> from coldhash import read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100), seed=0)
    >>> model.name, model.bytes_per_item, len(model.recommend({"age": 30}, k=5))
    ('mfdcf', 4, 5)
    """

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
    # learn what codes of items that come later follow from; costs about a third of the fit
    new_items: bool = False

    def __post_init__(self) -> None:
        check_types(self)
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
            new_items=(isinstance(self.new_items, bool), "True or False"),
        )

    def fit(
        self,
        data: Dataset | Prepared,
        seed: int = 0,
        callback: Callback | None = None,
        *,
        on: Any = None,
        item_codes: np.ndarray | None = None,
    ) -> Recommender:
        """Alternate the steps until (9) hardly falls; `callback` is told each round and (9).

        Parameters
        ----------
        data
            A data set, or a folder of partitions that `prepare` made.
        on
            Where the partitions of users are: None (in memory; a prepared folder is streamed),
            `Memory()`, `Disk(folder)`, or a `dask.distributed.Client`. It changes no bit of the
            codes.
        item_codes
            Codes to start from (items x bits, +1 and -1); None: random ones.
        """
        clock, rng = Clock(), np.random.default_rng(seed)
        # BLAS on one thread: the same sums in the same order everywhere
        with threadpool_limits(1, "blas"), opened(data, on) as crowd:
            if not crowd.n_ratings:
                raise DataError("there are no ratings to learn from")
            users, highest = crowd.users, crowd.scale[1]
            encoder = learn_features(users, crowd.plan, crowd.items, highest, seed)
            clock.mark("features")
            target = RatingTarget(self.target, highest)
            problem, sums, rng = self._problem(crowd, encoder, target, rng)
            clock.mark("prepare")
            identity = {"settings": asdict(self), "seed": seed}
            run = Run(problem, users, crowd.checkpoint, identity, item_codes)
            problem, state, objective = self._alternate(run, clock, rng, callback)
            state = fold(problem, users, state, self.cold_rotation)
            content = None if encoder.preference is None else encoder.preference.main
            items = CodeItems.of(signs(state.D))
            history = fit_history(problem, users, state, target, sums, items, content)
            clock.mark("history")
            item_map = None
            if self.new_items:
                made_of = encoder.item_content(crowd.items, len(items))
                item_map = fit_item_map(problem, users, state, made_of, target, rng)
                clock.mark("newcomers")
            reports = _reports(problem, users, state)
            clock.mark("report")
            user_vectors = gathered(users.each(VECTORS), users, (problem.n_users, self.n_bits))
            facts = crowd.facts()
        weights = {name: 1 / mu for name, mu in state.mu.items()}
        return Recommender(
            **facts,
            popularity=sums["favourites"].astype(np.float32),
            name="mfdcf",
            settings=asdict(self),
            features=encoder,
            encoder=ConsensusEncoder(
                {name: state.W[name] for name in problem.strangers},
                weights,
                state.average,
                history,
            ),
            items=items,
            item_map=item_map,
            user_vectors=user_vectors,
            report={
                "objective": objective,
                "seconds": clock.seconds,
                "group_weights": _shares(weights),
                "ridges": {name: group.ridge for name, group in problem.groups.items()},
            }
            | reports,
        )

    def _alternate(
        self, run: Run, clock: Clock, rng: np.random.Generator, callback: Callback | None
    ) -> tuple[Problem, State, list[float]]:
        """Go round the steps: each lowers (9) over one block.

        Two things do not: strangers pull the item step elsewhere, and choosing the ridge changes
        (9) itself, once. With `stranger_weight=0` and a given ridge, (9) never rises.
        """
        rotate, improve = ROTATIONS[self.rotation], ITEM_STEPS[self.item_step]
        problem, users = run.problem, run.users
        state, objective = self._start(run, rng), run.objective
        problem = run.problem
        while not self._settled(objective):
            consensus(problem, users, state)  # (19), (21)
            clock.mark("users")
            if self.ridge is None and len(objective) == min(SETTLED, self._n_rounds - 1):
                problem = problem.with_ridges(
                    best_ridges(users, problem.groups, _root(state.DtD), rng)
                )
            found = self._fit_maps(problem, users, state)
            clock.mark("maps")
            rotate(problem, users, state, self.rotation_weight)  # (17), (24), (25)
            D, L, G = item_side(problem, users, state)
            set_items(problem, users, state, improve(D, L, G, self.n_sweeps, rng))  # (21)
            clock.mark("items")
            objective.append(loss(problem, users, state, found))
            clock.mark("objective")
            run.keep(problem, state, objective, rng)
            if callback is not None:
                callback(len(objective) - 1, objective[-1])
        consensus(problem, users, state, with_codes=False)
        self._fit_maps(problem, users, state)
        return problem, state, objective

    @property
    def _n_rounds(self) -> int:
        return self.n_rounds or max(8, min(20, 160 // self.n_bits))

    def _settled(self, objective: list[float]) -> bool:
        if len(objective) < 2 or len(objective) >= self._n_rounds:
            return len(objective) >= self._n_rounds
        before, after = objective[-2:]
        return abs(before - after) <= self.tolerance * abs(before)

    def _start(self, run: Run, rng: np.random.Generator) -> State:
        """Start from item codes, or go on where a killed fit was."""
        kept = run.resume(rng)
        if kept is not None:
            return kept
        state = start(run.problem, run.users, self.n_bits, rng, run.item_codes)
        if self.rotation != "identity":
            state.R = random_rotation(self.n_bits, rng)
        return state

    def _fit_maps(self, problem: Problem, users: Partitions, state: State) -> dict[str, float]:
        state.W = maps(problem, state)  # (14)
        state.V = beyond_rank(problem, state)  # (23)
        found = misfits(problem, users, state)
        state.mu = group_weights(found)  # (12)
        return found

    def _problem(
        self,
        crowd: Crowd,
        encoder: FeatureEncoder,
        target: RatingTarget,
        rng: np.random.Generator,
    ) -> tuple[Problem, dict[str, Any], np.random.Generator]:
        """Prepare every partition; gives also the sums over items that come out of it."""
        users = crowd.users
        found = list(users.each(PREPARE, encoder, target, self.n_bits))
        names = ("popularity", "favourites", "norms", "root_counts")
        sums = added({name: one[name] for name in names} for one in found)
        groups = make_groups(found, self.ridge or FIRST_RIDGE)
        if self.svd_rank is not None:
            sums["norms"], rng = truncate(users, self.svd_rank, rng)
        short = self.n_bits <= 16  # too few bits to serve vectors and codes alike
        weights = item_weights(sums["popularity"], self.popularity_power)
        problem = Problem(
            n_users=crowd.n_users,
            known=float(weights[:, 0] @ sums["norms"]),
            item_weights=weights,
            groups=groups,
            strangers=draw_strangers(users, groups, crowd.n_users, rng),
            fit_weight=self.fit_weight,
            code_weight=self.code_weight,
            rank_weight=self.rank_weight,
            retained_rank=self.retained_rank or max(self.n_bits // 2, 1),
            stranger_weight=_default(self.stranger_weight, 0.9 if short else 0.6),
            stranger_code_share=_default(self.stranger_code_share, 1 / 3 if short else 1.0),
        )
        return problem, sums, rng

    def recommend(self, *_: Any, **__: Any) -> None:
        """Say what to write instead: settings cannot recommend."""
        raise SettingError(
            "these are the settings of a model, not a fitted one",
            hint="model = MFDCF(...).fit(data); model.recommend(...)",
        )


def _reports(problem: Problem, users: Partitions, state: State) -> dict[str, Any]:
    """Describe codes by those of the first users."""
    firsts = list(users.each(FIRST_VECTORS, ENOUGH, state.W, state.mu, state.average))
    known, unseen = (np.concatenate([pair[at] for pair in firsts]) for at in (0, 1))
    return {
        "user_codes": code_report(known),
        "item_codes": code_report(state.D),
        "stranger_codes": code_report(unseen),
        "warning": warn_of_collapse(unseen),
    }


def _root(G: np.ndarray) -> np.ndarray:
    """Find C with C C' = G: distances in H C are distances between predicted ratings."""
    lift = 1e-6 * np.trace(G) / len(G) * np.eye(len(G))
    return np.linalg.cholesky(G + lift).astype(np.float32)


def _default(setting: float | None, default: float) -> float:
    return default if setting is None else setting


def _shares(weights: dict[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}
