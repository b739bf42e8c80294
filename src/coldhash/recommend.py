"""Recommender: what every method's fit returns. Encodes anybody and scores the catalogue."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from scipy.sparse import csr_array

from coldhash.codes import signs
from coldhash.data.ids import Ids
from coldhash.encoders.encoded import Encoded, Encoder
from coldhash.errors import SettingError
from coldhash.features.groups import FeatureEncoder
from coldhash.features.people import HISTORY, as_columns, read_histories
from coldhash.items import CodeItems, Items

Score = Literal["real", "hamming"]


@dataclass(frozen=True, eq=False)
class Recommender:
    """A fitted model: an encoder for users, and a code or a vector for each item.

    `popularity` counts the favourites in the training part; it breaks ties and answers for people
    of whom nothing is known.
    """

    name: str
    settings: dict[str, Any]
    features: FeatureEncoder
    encoder: Encoder
    item_ids: Ids
    items: Items
    popularity: np.ndarray
    scale: tuple[float, float]  # of ratings
    user_ids: Ids
    user_vectors: np.ndarray
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def has_codes(self) -> bool:
        """Whether items are codes: then Hamming distances exist."""
        return isinstance(self.items, CodeItems)

    def encode(self, people: Any, ratings: csr_array | None = None) -> Encoded:
        """Turn people into vectors: a dict, a list of dicts, or a table.

        A dict may hold a `history` of item ids and ratings; `ratings` (people x items) stands for
        the histories of a whole table. What a person gets does not depend on who else is asked
        about.
        """
        ignored: list[tuple[int, str]] = []
        if ratings is None:
            columns, n_rows = as_columns(people)
            found = read_histories(columns.get(HISTORY), n_rows, self.item_ids, self.scale)
            if found is not None:
                ratings, ignored = found.ratings, found.ignored
        encoded = self.encoder.encode(self.features.apply(people, ratings), ratings)
        return replace(encoded, ignored=ignored)

    def with_users(self, user_ids: Any, people: Any, ratings: csr_array | None) -> Recommender:
        """Give known users new vectors from what is known of them now; nothing is refitted."""
        vectors = self.user_vectors.copy()
        vectors[self.user_ids.rows(user_ids)] = self.encode(people, ratings).vectors
        return replace(self, user_vectors=vectors)

    def score(self, encoded: Encoded, score: Score = "real") -> np.ndarray:
        """Score the catalogue for encoded people; who had nothing to go by gets popularity."""
        if score not in get_args(Score):
            raise SettingError(f"score={score!r}", hint=f"one of {', '.join(get_args(Score))}")
        vectors = encoded.vectors
        if score == "hamming":
            if not self.has_codes:
                raise SettingError(
                    f"{self.name} has real-valued items, so no Hamming distance",
                    hint="score='real'",
                )
            vectors = signs(vectors).astype(np.float32)
        scores = self.items.scores(vectors)
        scores[encoded.fallback] = self.popularity
        return scores
