"""Popularity and ridge: the controls that every table must show.

Popularity: items are ranked by how many favourites they have, among all training users or among
those in the same cell of a table over some columns (for example age and gender), mixed with all by
`smoothing`:

    score_i = (favourites of i in the cell) / (users in the cell + smoothing)
              + smoothing / (users in the cell + smoothing) · (favourites of i) / (users)

Ridge: features -> a row of favourites, real-valued: what features alone predict.

    min  ‖Y - X W‖² + λ‖W‖²

with Y the favourites (1, or 0) and X the features of the groups that a stranger may have, side by
side. Items are the columns of W: as many floats an item as there are features.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat
from scipy.sparse import csr_array

from coldhash.baselines.shared import Baseline, StackEncoder, Training, solve_ridge
from coldhash.errors import SettingError
from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.recommender.encoders import Encoded, Encoder
from coldhash.recommender.items import Items
from coldhash.recommender.recommender import Recommender

Blocks = tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class Popularity(Baseline):
    """Settings of the counts.

    Parameters
    ----------
    cell
        The columns whose values make the cells; none: plain popularity.
    smoothing
        How many users' worth of overall popularity every cell has.

    Examples
    --------
    >>> from coldhash import read
    >>> model = Popularity(cell=("gender",)).fit(read("sample", n_users=200, n_items=60))
    >>> model.recommend([{"gender": "male"}, {}], k=3).fallback.tolist()
    [False, True]
    """

    cell: tuple[str, ...] = ()
    smoothing: NonNegativeFloat = 100.0

    def _fit(self, training: Training) -> Recommender:
        """Count the favourites."""
        encoder = CellEncoder(*_find_columns(training.features, self.cell) if self.cell else ())
        users = encoder.encode(training.people, None).vectors
        items = training.popularity[:, None]
        if self.cell:
            items = self._shares_by_cell(users[:, 1:], training.favourites)
        return training.make_recommender("popularity", encoder, users, items)

    def _shares_by_cell(self, cells: np.ndarray, liked: csr_array) -> np.ndarray:
        """Return each item's share of favourites in every cell, after a zero for the constant."""
        overall = np.asarray(liked.sum(axis=0))[:, None] / max(liked.shape[0], 1)
        sums = np.asarray(liked.T @ cells) + self.smoothing * overall
        shares = sums / (cells.sum(axis=0) + self.smoothing)
        return np.hstack([np.zeros((len(shares), 1)), shares]).astype(np.float32)


def _find_columns(features: FeatureEncoder, columns: tuple[str, ...]) -> tuple[str, Blocks]:
    """Return the group that has these columns, and where they are in it."""
    for name, group in features.groups.items():
        if group.columns.keys() >= set(columns):
            if group.folded:
                raise SettingError(
                    f"group {name} is too wide for cells of {', '.join(columns)}",
                    hint="put these columns into a group of their own",
                )
            ends = np.cumsum([0, *(column.width for column in group.columns.values())]).tolist()
            spans = dict(zip(group.columns, pairwise(ends), strict=True))
            return name, tuple(spans[column] for column in columns)
    known = {name: list(group.columns) for name, group in features.groups.items()}
    raise SettingError(f"no group holds the columns {columns}", hint=f"the groups are {known}")


@dataclass(frozen=True, eq=False)
class CellEncoder(Encoder):
    """The cell of a table over some columns of one group, and a constant.

    A missing column counts as its average, so that the person stands in several cells in part.
    Without a group everybody is the same.
    """

    group: str | None = None
    blocks: Blocks = ()  # from and to column within the group

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Encode people; a history tells this encoder nothing."""
        constant = np.ones((len(features), 1), dtype=np.float32)
        if self.group is None:
            return Encoded(constant, {}, np.ones(len(features), dtype=bool))
        matrix, has = features.matrices[self.group], features.has[self.group]
        cells = constant
        for start, end in self.blocks:
            block = np.asarray(matrix[:, start:end])
            cells = (cells[:, :, None] * block[:, None, :]).reshape(len(has), -1)
        return Encoded(np.hstack([constant, cells]), {self.group: has.astype(np.float32)}, ~has)

    def state(self) -> State:
        """Return everything needed to rebuild the encoder."""
        return {"group": self.group, "blocks": self.blocks}, {}

    @classmethod
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> Self:
        """Rebuild the encoder."""
        json, _ = state
        return cls(json["group"], tuple((start, end) for start, end in json["blocks"]))


@dataclass(frozen=True, kw_only=True)
class Ridge(Baseline):
    """Settings of the regression.

    Parameters
    ----------
    ridge
        Strength of the shrinkage (λ).

    Examples
    --------
    >>> from coldhash import read
    >>> model = Ridge(ridge=100.0).fit(read("sample", n_users=200, n_items=60))
    >>> model.has_codes, len(model.recommend({"age": 30}, k=3))
    (False, 3)
    """

    ridge: PositiveFloat = 400.0

    def _fit(self, training: Training) -> Recommender:
        """Solve one linear system for all items."""
        X, Y = training.stacked, training.favourites
        W = solve_ridge(X, np.asarray((Y.T @ X).T), self.ridge)
        items = np.ascontiguousarray(W.T, dtype=np.float32)
        return training.make_recommender("ridge", StackEncoder(training.groups), X, items)
