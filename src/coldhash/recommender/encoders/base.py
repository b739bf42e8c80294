"""What all encoders share: what they return, and what they are asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from coldhash.data.ids import Ids
from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.recommender.items import Items


@dataclass(frozen=True, eq=False)
class Encoded:
    """People as vectors.

    Parameters
    ----------
    vectors
        People x width.
    weights
        The share of each feature group in the vectors, by group.
    fallback
        Who had nothing usable: they get the popular items.
    ignored
        Rated items that the model does not know: the person's place, and the item id.
    history
        What people have rated (people x items), if anything is known of it.
    names
        What people are called; empty: by their place.
    """

    vectors: np.ndarray
    weights: dict[str, np.ndarray]
    fallback: np.ndarray
    ignored: list[tuple[int, str]] = field(default_factory=list)
    history: csr_array | None = None
    names: list[str] = field(default_factory=list)


class Encoder(ABC):
    """From features and histories (people x items, or None) to vectors."""

    @property
    def uses_preference(self) -> bool:
        """Whether a history counts as the preference group, too."""
        return False

    @abstractmethod
    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Compute the vectors of people."""

    def explain(
        self, features: Features, history: csr_array | None, item_ids: Ids
    ) -> tuple[Encoded, dict[str, np.ndarray]]:
        """Encode one person; return also named vectors that add up to the person's."""
        del item_ids
        encoded = self.encode(features, history)
        return encoded, {"all that is known": encoded.vectors[0]}

    def follow_items(
        self, items: Items, features: FeatureEncoder, rows: np.ndarray, n_new: int
    ) -> Self:
        """Return the encoder for other items: `rows` of those it had, then `n_new` more."""
        del items, features, rows, n_new
        return self

    @abstractmethod
    def state(self) -> State:
        """Return what only the encoder knows, as JSON and arrays."""

    @classmethod
    @abstractmethod
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> Self:
        """Rebuild the encoder from its state and from what the model has anyway."""


def group_shares(features: Features, groups: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return equal shares of the groups that each person has."""
    has = np.column_stack([features.has[name] for name in groups])
    shares = scale_rows(has.astype(np.float32))
    return {name: shares[:, at] for at, name in enumerate(groups)}


def has_nothing(features: Features, groups: tuple[str, ...]) -> np.ndarray:
    """Return who has none of the groups."""
    return np.asarray(~np.logical_or.reduce([features.has[name] for name in groups]))


def scale_rows(weights: np.ndarray) -> np.ndarray:
    """Scale rows of weights so that they add up to 1; a row of zeros stays."""
    totals = weights.sum(axis=1, keepdims=True)
    return np.asarray(weights / np.where(totals > 0, totals, 1), dtype=np.float32)
