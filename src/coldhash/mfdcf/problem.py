"""What MFDCF's steps work on: the target matrix and the feature groups, prepared once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from coldhash.arrays.products import times
from coldhash.data.targets import RatingTarget, is_favourite
from coldhash.errors import DataError, SettingError
from coldhash.features.groups import FeatureEncoder
from coldhash.features.preference import PREFERENCE, chosen_rows, dealt
from coldhash.partitions import Changes, Part, Partitions, Step, added, columns_of

RIDGES = (1.0, 3.0, 10.0, 30.0, 50.0, 100.0, 200.0, 300.0, 1000.0, 3000.0)
AS_GOOD = 1 + 5e-4  # an error up to this times the lowest is as good as it
ENOUGH = 20_000  # users that a ridge is chosen on


@dataclass(frozen=True, eq=False)
class LowRank:
    """A matrix P Q: S replaced by its truncated SVD, as printed before (18)."""

    P: np.ndarray
    Q: np.ndarray


Target: TypeAlias = Any  # csr_array | LowRank


def multiply(S: Target, D: np.ndarray) -> np.ndarray:
    """S D."""
    if isinstance(S, LowRank):
        return S.P @ (S.Q @ D)  # type: ignore[no-any-return]
    return times(S, D)


@dataclass(frozen=True, eq=False)
class Group:
    """What all users together know of one group: the eigen-decomposition of X'X."""

    eigenvalues: np.ndarray
    U: np.ndarray
    ridge: float
    counts: list[int]  # of users who have the group, by partition

    def map(self, XtH: np.ndarray, extra: float = 0.0, V: np.ndarray | None = None) -> np.ndarray:
        """Solve (14): ridge regression of H on X, stiffer by `extra` along the directions V."""
        rotated = self.U.T @ XtH
        plain = rotated / (self.eigenvalues + self.ridge)[:, None]
        if V is not None and extra > 0:
            stiff = rotated / (self.eigenvalues + self.ridge + extra)[:, None]
            plain = plain + (stiff - plain) @ V @ V.T
        return (self.U @ plain).astype(np.float32)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that stays fixed while the steps alternate and is not about single users."""

    n_users: int
    known: float  # ‖S V½‖², which no step changes
    item_weights: np.ndarray  # items x 1, mean 1
    groups: dict[str, Group]
    strangers: tuple[str, ...]  # the groups that somebody without ratings may have
    fit_weight: float
    code_weight: float
    rank_weight: float
    retained_rank: int
    stranger_weight: float
    stranger_code_share: float

    def with_ridges(self, ridges: dict[str, float]) -> Problem:
        """Give each group its ridge."""
        groups = {name: replace(group, ridge=ridges[name]) for name, group in self.groups.items()}
        return replace(self, groups=groups)


def _prepare(
    part: Part, encoder: FeatureEncoder, target: RatingTarget, n_bits: int
) -> tuple[Changes, dict[str, Any]]:
    """Turn ratings into targets and tables into features; add up what groups and items need."""
    ratings = part["ratings"]
    values = target(ratings.data)
    n_items, indices = ratings.shape[1], ratings.indices
    S = csr_array((values * np.float32(n_bits), indices, ratings.indptr), shape=ratings.shape)
    features = encoder.apply(columns_of(part), ratings)
    counts = np.diff(ratings.indptr)
    liked = indices[is_favourite(ratings.data, target.highest)]
    sums = {
        "popularity": np.bincount(indices, values, minlength=n_items),
        "favourites": np.bincount(liked, minlength=n_items),
        "norms": np.bincount(indices, S.data.astype(np.float64) ** 2, minlength=n_items),
        "root_counts": float(np.sum(np.sqrt(counts.astype(np.float64)))),
        "grams": {name: _gram(X) for name, X in features.matrices.items()},
        "has": {name: int(has.sum()) for name, has in features.has.items()},
    }
    has = {name: has.astype(np.float32)[:, None] for name, has in features.has.items()}
    return {"S": S, "St": csr_array(S.T.tocsr()), "X": features.matrices, "has": has}, sums


def _gram(X: Any) -> np.ndarray:
    XtX = X.T @ X
    return np.asarray(XtX.toarray() if hasattr(XtX, "toarray") else XtX, dtype=np.float64)


def _truncate(
    part: Part, rank: int, rng: np.random.Generator
) -> tuple[Changes, tuple[np.ndarray, np.random.Generator]]:
    """Replace S by its truncated SVD; gives the squared lengths of its columns."""
    S = part["S"]
    P, sigma, Q = svds(S.astype(np.float64), k=min(rank, min(S.shape) - 1), rng=rng)
    low = LowRank((P * sigma).astype(np.float32), Q.astype(np.float32))
    Q, PtP = low.Q.astype(np.float64), low.P.T.astype(np.float64) @ low.P
    norms = np.einsum("oi,op,pi->i", Q, PtP, Q)
    return {"S": low, "St": LowRank(low.Q.T, low.P.T)}, (norms, rng)


def _draw_strangers(
    part: Part, names: tuple[str, ...], rng_state: dict[str, Any]
) -> tuple[Changes, None]:
    """Say what each training user would bring as a stranger: no ratings, so no preference.

    Of several groups a random part is left out, so that every subset a stranger may have occurs.
    """
    has = np.hstack([part["has"][name] for name in names])
    if len(names) > 1:
        source = np.random.PCG64()
        source.state = rng_state  # type: ignore[assignment]
        source.advance(part["first"] * len(names))  # to this partition's stretch of one sequence
        kept = has * (np.random.Generator(source).random(has.shape) < 0.7)
        has = np.where(kept.any(axis=1, keepdims=True), kept, has)
    drawn = {name: has[:, at : at + 1].astype(np.float32) for at, name in enumerate(names)}
    return {"strangers": drawn}, None


def _sampled(
    part: Part, name: str, U: np.ndarray, root: np.ndarray
) -> tuple[Changes, tuple[np.ndarray, np.ndarray]]:
    """Give features and vectors of the chosen users of a group."""
    rows = np.flatnonzero(part["has"][name][:, 0])[part["chosen"]]
    return {}, (part["X"][name][rows] @ U, (part["H"] @ root)[rows])


PREPARE = Step(_prepare, reads=("ratings", "columns"), writes=("S", "St", "X", "has"))
TRUNCATE = Step(_truncate, reads=("S",), writes=("S", "St"))
DRAW_STRANGERS = Step(_draw_strangers, reads=("first", "has"), writes=("strangers",))
SAMPLED = Step(_sampled, reads=("has", "X", "H", "chosen"))


def truncate(
    users: Partitions, rank: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.random.Generator]:
    """Replace S by its truncated SVD, which is not a sum over users."""
    if len(users) > 1:
        raise SettingError(
            f"svd_rank={rank} needs all users in one partition, here are {len(users):,}",
            hint="svd_rank=None, which is also more accurate",
        )
    [made] = users.each(TRUNCATE, rank, rng)
    return made  # type: ignore[no-any-return]


def make_groups(sums: list[dict[str, Any]], ridge: float) -> dict[str, Group]:
    """Decompose X'X of the groups that at least one training user has; maps are then products."""
    grams = added(one["grams"] for one in sums)
    groups = {}
    for name, gram in grams.items():
        counts = [one["has"][name] for one in sums]
        if any(counts):
            eigenvalues, U = np.linalg.eigh(gram)
            groups[name] = Group(np.maximum(eigenvalues, 0.0), U, ridge, counts)
    if not groups:
        raise DataError(
            "no training user has any feature",
            hint="give a user table, or an item table for the preference group",
        )
    return groups


def draw_strangers(
    users: Partitions, groups: dict[str, Group], n_users: int, rng: np.random.Generator
) -> tuple[str, ...]:
    """Choose what training users bring as strangers; gives the groups that strangers may have."""
    names = tuple(name for name in groups if name != PREFERENCE) or tuple(groups)
    state = rng.bit_generator.state
    list(users.each(DRAW_STRANGERS, names, state))
    if len(names) > 1:
        rng.bit_generator.advance(n_users * len(names))  # type: ignore[attr-defined]
    return names


def item_weights(popularity: np.ndarray, power: float) -> np.ndarray:
    """Weigh items by popularity ** power, 1 on average (items x 1)."""
    weights = np.maximum(popularity.astype(np.float64), 1e-9) ** power
    return (weights / weights.mean()).astype(np.float32)[:, None]  # type: ignore[no-any-return]


def best_ridges(
    users: Partitions, groups: dict[str, Group], root: np.ndarray, rng: np.random.Generator
) -> dict[str, float]:
    """Choose for each group the ridge with which it predicts the ratings that H root stands for."""
    ridges = {}
    for name, group in groups.items():
        some = chosen_rows(sum(group.counts), ENOUGH, rng)
        users.put("chosen", dealt(some, group.counts))
        found = list(users.each(SAMPLED, name, group.U.astype(np.float32), root))
        Z, Y = (np.concatenate([one[at] for one in found]) for at in (0, 1))
        ridges[name] = best_ridge(Z, Y)
    users.drop("chosen")
    return ridges


def best_ridge(Z: np.ndarray, Y: np.ndarray) -> float:
    """Choose the least ridge whose leave-one-out error (PRESS) of Z -> Y is as good as the best.

    Z are features along the eigenvectors of X'X.
    """
    eigenvalues = np.maximum(np.einsum("nd,nd->d", Z, Z, dtype=np.float64), 0.0)
    ZtY, squares = (Z.T @ Y).astype(np.float64), Z.astype(np.float64) ** 2
    errors = []
    for ridge in RIDGES:
        shrink = 1.0 / (eigenvalues + ridge)
        residual = Y - Z @ (ZtY * shrink[:, None]).astype(np.float32)
        leverage = np.minimum(squares @ shrink, 1 - 1e-6)
        square = np.einsum("nr,nr->n", residual, residual, dtype=np.float64)
        errors.append(float(np.sum(square / (1 - leverage) ** 2)))
    if not np.isfinite(errors).all():
        raise DataError("features or settings are too large to fit", hint="scale them to about 1")
    return next(r for r, e in zip(RIDGES, errors, strict=True) if e <= min(errors) * AS_GOOD)
