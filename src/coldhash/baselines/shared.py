"""What several baselines share: settings, matrices, ridge maps, delegates, rotations, the model.

Delegates are the real-valued stand-ins that keep codes balanced and bits uncorrelated:

    max  tr(B'X)   over   X'1 = 0,  X'X = n I

Exactly balanced and uncorrelated codes may not exist, so codes are only pulled towards the nearest
real matrix that is both. With the centred codes  B - 1b̄ = U Σ P',  it is  X = √n [U U*][P P*]',
where U* and P* complete the directions in which the codes do not vary.

Zhang, Shen, Liu, He, Luan and Chua, "Discrete collaborative filtering", SIGIR 2016.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Self, TypeAlias

import numpy as np
from pydantic import Field
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from coldhash.arrays.checks import check_memory, take
from coldhash.arrays.codes import signs
from coldhash.arrays.products import times
from coldhash.data.dataset import Dataset
from coldhash.data.ratings import Ratings, RatingTarget, TargetKind, as_ones
from coldhash.errors import DataError, SettingError, check_types
from coldhash.features.fitting import fit_features
from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.features.people import as_columns
from coldhash.mfdcf.model import Callback, code_report, warn_of_collapse
from coldhash.recommender.encoders import Encoded, Encoder, scale_rows
from coldhash.recommender.items import CodeItems, Items, RealItems
from coldhash.recommender.recommender import Recommender

Bits = Annotated[int, Field(ge=1, le=1024)]
Step = Callable[[csr_array, np.ndarray, np.ndarray], np.ndarray]  # entries, rows, columns: rows
Matrix: TypeAlias = "np.ndarray | csr_array"
Kind = Callable[..., Items]  # from vectors and popularity
Loss = Callable[[csr_array, np.ndarray, np.ndarray], float]

ROTATION_ROUNDS = 50  # of `find_rotation` and the like, where codes begin or end
_FLAT = 1e-8  # share of the greatest eigenvalue below which codes do not vary in a direction


@dataclass(frozen=True, kw_only=True)
class Baseline(ABC):
    """Base of the settings of a method: values must be of the declared types and ranges."""

    def __post_init__(self) -> None:
        check_types(self)

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Learn from a data set.

        Parameters
        ----------
        data
            Ratings, users and items.
        seed
            Seed of everything that is drawn.
        callback
            Called with the number of each round and the objective after it.

        Returns
        -------
        Recommender
            The fitted model.

        Raises
        ------
        DataError
            The method cannot learn from these data.
        """
        with threadpool_limits(1, "blas"):  # the same sums in the same order everywhere
            return self._fit(Training(self, data, fit_features(data), seed, callback))

    @abstractmethod
    def _fit(self, training: Training) -> Recommender:
        """Learn from a data set, on one thread of BLAS."""


@dataclass(frozen=True, eq=False)
class Training:
    """What a method learns from, and what becomes of it.

    Parameters
    ----------
    settings
        The settings of the method.
    data
        Ratings, users and items.
    features
        From what is known of people to features.
    seed
        Seed of everything that is drawn.
    callback
        Called by `record`.
    report
        What the fit reports, such as the objective after each round.
    """

    settings: Baseline
    data: Dataset
    features: FeatureEncoder
    seed: int
    callback: Callback | None
    report: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def rng(self) -> np.random.Generator:
        """The generator of everything that is drawn."""
        return np.random.default_rng(self.seed)

    @cached_property
    def people(self) -> Features:
        """The features of the training users."""
        # a table without columns does not know its length
        return self.features.encode(as_columns(self.data.users)[0], self.data.n_users)

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The feature groups that somebody without ratings may have."""
        return stranger_groups(self.features)

    @cached_property
    def stacked(self) -> np.ndarray:
        """The features of these groups, side by side."""
        return stack_features(self.people, self.groups)

    @cached_property
    def ratings(self) -> Ratings:
        """The ratings; counts and events, which have no scale, as 1 of 0 to 1."""
        ratings = self.data.ratings
        if ratings.feedback.kind == "ratings":
            return ratings
        return replace(ratings, matrix=as_ones(ratings.matrix), declared_scale=(0.0, 1.0))

    @cached_property
    def favourites(self) -> csr_array:
        """Users x items with a 1 for each favourite."""
        return favourite_matrix(self.data)

    @cached_property
    def popularity(self) -> np.ndarray:
        """Number of favourites by item."""
        return np.asarray(self.favourites.sum(axis=0), dtype=np.float32)

    def targets(self, kind: TargetKind) -> csr_array:
        """Return users x items with the target of each rating."""
        return RatingTarget(kind, self.data.feedback)(self.data.ratings.matrix)

    def alternate(
        self, S: csr_array, U: np.ndarray, V: np.ndarray, update: Step, loss: Loss, n_rounds: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Update users, then items by the same step transposed, and record the objective."""
        St = transpose(S)
        for _ in range(n_rounds):
            U = update(S, U, V)
            V = update(St, V, U)
            self.record(loss(S, U, V))
        return U, V

    def record(self, value: float) -> None:
        """Append the objective after a round, and pass it to the callback."""
        objective = self.report.setdefault("objective", [])
        objective.append(value)
        if self.callback is not None:
            self.callback(len(objective) - 1, value)

    def fit_map(self, Y: np.ndarray, ridge: float) -> StackEncoder:
        """Fit a linear map from the features of strangers to the rows of Y."""
        W = solve_ridge(self.stacked, self.stacked.T @ Y, ridge).astype(np.float32)
        return StackEncoder(self.groups, W)

    def make_recommender(
        self, name: str, encoder: Encoder, users: np.ndarray, items: Matrix, kind: Kind = RealItems
    ) -> Recommender:
        """Return the fitted model.

        Parameters
        ----------
        name
            What the model is called.
        encoder
            From features to vectors of people.
        users
            The vectors of the training users.
        items
            The vectors of items.
        kind
            Makes items of vectors and popularity.

        Returns
        -------
        Recommender
            The model.
        """
        data = self.data
        return Recommender(
            name=name,
            settings=asdict(self.settings),
            features=self.features,
            encoder=encoder,
            item_ids=data.item_ids,
            items=kind(items, self.popularity),
            popularity=self.popularity,
            scale=data.scale,
            feedback=data.feedback,
            user_ids=data.user_ids,
            user_vectors=users,
            report=self.report,
            seen=data.ratings.matrix,
            item_table=data.items,
            columns=data.columns,
        )

    def make_code_recommender(
        self, name: str, encoder: Encoder, users: np.ndarray, items: np.ndarray
    ) -> Recommender:
        """Return a model whose item codes are signs; warn if those of strangers collapse."""
        users, strangers = users.astype(np.float32), encoder.encode(self.people, None).vectors
        self.report["user_codes"] = code_report(users)
        self.report["item_codes"] = code_report(items)
        self.report["stranger_codes"] = code_report(strangers)
        self.report["warning"] = warn_of_collapse(strangers)
        return self.make_recommender(name, encoder, users, signs(items), CodeItems.of_codes)

    def make_mapped_recommender(
        self, name: str, users: np.ndarray, items: np.ndarray, map_ridge: float
    ) -> Recommender:
        """Return a model of codes, with a map from features to user vectors."""
        encoder = self.fit_map(users.astype(np.float32), map_ridge)
        return self.make_code_recommender(name, encoder, users, items)


def favourite_matrix(data: Dataset) -> csr_array:
    """Return users x items with a 1 for each favourite."""
    ratings = data.ratings
    return as_ones(ratings.where(ratings.favourites).matrix)


def stranger_groups(encoder: FeatureEncoder) -> tuple[str, ...]:
    """Return the names of the feature groups that somebody without ratings may have."""
    groups = tuple(encoder.groups)
    if not groups:
        raise DataError(
            "there are no user features to predict from",
            hint="pass a user table whose plan has at least one group",
        )
    return groups


def solve_ridge(X: np.ndarray, XtY: np.ndarray, ridge: float) -> np.ndarray:
    """Compute (X'X + λI)⁻¹ X'Y in double precision."""
    gram = X.T.astype(np.float64) @ X + ridge * np.eye(X.shape[1])
    return np.linalg.solve(gram, XtY.astype(np.float64))


def delegate(B: np.ndarray) -> np.ndarray:
    """Compute the balanced, uncorrelated matrix nearest to B (entities x bits)."""
    n, n_bits = B.shape
    if n <= n_bits:
        raise SettingError(
            f"{n} codes of {n_bits} bits cannot be balanced and uncorrelated",
            hint=f"at most {max(n - 1, 0)} bits, or no balance",
        )
    centred = B - B.mean(axis=0, dtype=np.float64)
    values, P = np.linalg.eigh(centred.T @ centred)
    values, P = values[::-1], P[:, ::-1]  # descending, so that what is completed comes last
    rank = int(np.sum(values > _FLAT * max(values[0], 1.0)))
    U = centred @ (P[:, :rank] / np.sqrt(values[:rank]))
    if rank < n_bits:
        U = np.hstack([U, _complement(U, n_bits - rank)])
    return np.asarray(np.sqrt(n) * (U @ P.T))


def balance(B: np.ndarray, weight: float) -> np.ndarray:
    """Compute the pull of the delegate on each code; none at weight 0, however few the codes."""
    return weight * delegate(B) if weight else np.zeros(B.shape)


def _complement(U: np.ndarray, width: int) -> np.ndarray:
    """Return orthonormal columns that are orthogonal to those of U and to the constant."""
    n = len(U)
    basis = np.hstack([np.full((n, 1), 1 / np.sqrt(n)), U])
    free = np.random.default_rng(0).standard_normal((n, width))
    for _ in range(2):  # once leaves traces
        free -= basis @ (basis.T @ free)
    return np.linalg.qr(free)[0]


def polar(matrix: np.ndarray) -> np.ndarray:
    """Return the rotation nearest to a matrix."""
    P, _, Qt = np.linalg.svd(matrix)
    return P @ Qt  # type: ignore[no-any-return]


def random_rotation(n_bits: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a rotation (bits x bits), rounded to single precision."""
    return polar(rng.standard_normal((n_bits, n_bits))).astype(np.float32).astype(np.float64)


def find_rotation(F: np.ndarray, R: np.ndarray, n_rounds: int) -> tuple[np.ndarray, list[float]]:
    """Turn R until rows of F R are near codes; return it, and the loss after each round.

    The loss is ‖C - F R‖²; C = sgn(F R) and R = polar(F'C) in turn, neither of which raises it.
    """
    losses = []
    for _ in range(n_rounds):
        C = signs(F @ R, np.float64)
        R = polar(F.T @ C)
        losses.append(float(np.sum((C - F @ R) ** 2)))
    return R, losses


def transpose(S: csr_array) -> csr_array:
    """Return the transposed matrix, by rows as well."""
    return csr_array(S.T.tocsr())


@dataclass(frozen=True, eq=False)
class StackEncoder(Encoder):
    """The features of some groups side by side, sent through one map (None: as they are)."""

    groups: tuple[str, ...]
    matrix: np.ndarray | None = None

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Encode people; a history tells this encoder nothing."""
        vectors = stack_features(features, self.groups)
        if self.matrix is not None:
            vectors = times(vectors, self.matrix)
        weights = group_shares(features, self.groups)
        return Encoded(vectors.astype(np.float32), weights, has_nothing(features, self.groups))

    def state(self) -> State:
        """Return everything needed to rebuild the encoder."""
        arrays = {} if self.matrix is None else {"matrix": self.matrix}
        return {"groups": list(self.groups)}, arrays

    @classmethod
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> Self:
        """Rebuild the encoder."""
        json, arrays = state
        width = sum(features.widths[name] for name in json["groups"])
        if "matrix" not in arrays and width == items.width:
            return cls(tuple(json["groups"]))
        return cls(tuple(json["groups"]), **take(arrays, {"matrix": ("f", width, items.width)}))


def group_shares(features: Features, groups: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return equal shares of the groups that each person has."""
    has = np.column_stack([features.has[name] for name in groups])
    shares = scale_rows(has.astype(np.float32))
    return {name: shares[:, at] for at, name in enumerate(groups)}


def has_nothing(features: Features, groups: tuple[str, ...]) -> np.ndarray:
    """Return who has none of the groups."""
    return np.asarray(~np.logical_or.reduce([features.has[name] for name in groups]))


def stack_features(features: Features, groups: tuple[str, ...]) -> np.ndarray:
    """Put the matrices of some groups side by side, dense."""
    parts = [features.matrices[name] for name in groups]
    width = sum(part.shape[1] for part in parts)
    check_memory(4 * len(features) * width, f"features of {len(features):,} people x {width:,}")
    return np.hstack([part if isinstance(part, np.ndarray) else part.toarray() for part in parts])
