"""What all encoders share: what they give, and how they are asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
from scipy.sparse import csr_array

from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.recommender.items import Items


@dataclass(frozen=True, eq=False)
class Encoded:
    """User vectors, the share of each group in them, and who had nothing to go by."""

    vectors: np.ndarray
    weights: dict[str, np.ndarray]
    fallback: np.ndarray
    ignored: list[tuple[int, str]] = field(default_factory=list)  # rated items nobody knows


class Encoder(Protocol):
    """From features and histories (people x items, or None) to vectors."""

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Encode people."""
        ...

    def state(self) -> State:
        """Give what only the encoder knows, as JSON and arrays."""
        ...

    @classmethod
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> Self:
        """Rebuild the encoder from its state and from what the model has anyway."""
        ...


def shares_of(weights: np.ndarray) -> np.ndarray:
    """Scale rows of weights so that they add up to 1; a row of zeros stays."""
    totals = weights.sum(axis=1, keepdims=True)
    return np.asarray(weights / np.where(totals > 0, totals, 1), dtype=np.float32)
