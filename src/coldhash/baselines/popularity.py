"""Popularity: the control that every table must show.

Items are ranked by how many favourites they have, among all training users or among those in the
same cell of a table over some columns (say age and gender), mixed with all by `smoothing`:

    score_i = (favourites of i in the cell) / (users in the cell + smoothing)
              + smoothing / (users in the cell + smoothing) · (favourites of i) / (users)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array

from coldhash.baselines.shared import favourite_matrix, make_recommender
from coldhash.data.dataset import Dataset
from coldhash.errors import SettingError
from coldhash.features.fitting import fit_features
from coldhash.features.groups import FeatureEncoder
from coldhash.recommender.encoders.base import Encoder
from coldhash.recommender.encoders.linear import CellEncoder, NoEncoder
from coldhash.recommender.recommender import Recommender
from coldhash.recommender.settings import Callback, check_settings, check_types


@dataclass(frozen=True, kw_only=True)
class Popularity:
    """Settings: the columns that make the cells, none for plain popularity.

    Examples
    --------
    >>> from coldhash import read
    >>> model = Popularity(cell=("gender",)).fit(read("sample", n_users=200, n_items=60))
    >>> model.recommend([{"gender": "male"}, {}], k=3).fallback.tolist()
    [False, True]
    """

    cell: tuple[str, ...] = ()
    smoothing: float = 100.0

    def __post_init__(self) -> None:
        check_types(self)
        check_settings(self, smoothing=(self.smoothing >= 0, "0 or more"))

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Count the favourites."""
        del callback
        features = fit_features(data, seed)
        liked = favourite_matrix(data)
        popularity = np.asarray(liked.sum(axis=0), dtype=np.float32)
        encoder: Encoder = NoEncoder()
        vectors = popularity[:, None]
        if self.cell:
            encoder = _cell_encoder(features, self.cell)
            vectors = self._by_cell(encoder, features, data, liked)
        return make_recommender(
            data,
            name="popularity",
            settings=self,
            features=features,
            encoder=encoder,
            vectors=vectors,
            user_vectors=encoder.encode(
                features.apply(data.users, data.ratings.matrix), None
            ).vectors,
        )

    def _by_cell(
        self, encoder: CellEncoder, features: FeatureEncoder, data: Dataset, liked: csr_array
    ) -> np.ndarray:
        """Give each item its share of favourites in every cell, behind a zero for the constant."""
        cells = encoder.encode(features.apply(data.users), None).vectors[:, 1:]
        counts = np.asarray(liked.T @ cells)
        users = cells.sum(axis=0)
        overall = np.asarray(liked.sum(axis=0))[:, None] / max(liked.shape[0], 1)
        shares = (counts + self.smoothing * overall) / (users + self.smoothing)
        return np.hstack([np.zeros((len(shares), 1)), shares]).astype(np.float32)


def _cell_encoder(features: FeatureEncoder, columns: tuple[str, ...]) -> CellEncoder:
    """Find the columns, which must be of one group."""
    for name, group in features.groups.items():
        ends = np.cumsum([0, *(column.width for column in group.columns.values())])
        spans = dict(zip(group.columns, pairwise(ends), strict=True))
        if all(column in spans for column in columns):
            if group.folded:
                raise SettingError(
                    f"group {name} is too wide for cells of {', '.join(columns)}",
                    hint="a plan with these columns in a group of their own",
                )
            blocks = tuple((int(a), int(b)) for a, b in (spans[column] for column in columns))
            return CellEncoder(name, blocks)
    known = {name: list(group.columns) for name, group in features.groups.items()}
    raise SettingError(f"no group holds the columns {columns}", hint=f"the groups are {known}")
