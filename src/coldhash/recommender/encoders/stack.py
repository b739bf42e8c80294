"""Features side by side, sent through one map; and no encoder at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.checks import take
from coldhash.arrays.memory import check_memory
from coldhash.arrays.products import times
from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.recommender.encoders.encoded import Encoded, shares_of
from coldhash.recommender.items import Items


@dataclass(frozen=True, eq=False)
class StackEncoder:
    """The features of some groups side by side, sent through one map (None: as they are)."""

    groups: tuple[str, ...]
    matrix: np.ndarray | None = None

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Encode people; a history tells this encoder nothing."""
        del history
        has = np.column_stack([features.has[name] for name in self.groups])
        vectors = stacked(features, self.groups)
        if self.matrix is not None:
            vectors = times(vectors, self.matrix)
        shares = shares_of(has.astype(np.float32))
        weights = {name: shares[:, at] for at, name in enumerate(self.groups)}
        return Encoded(vectors.astype(np.float32), weights, np.asarray(~has.any(axis=1)))

    def state(self) -> State:
        """Give everything needed to rebuild the encoder."""
        arrays = {} if self.matrix is None else {"matrix": self.matrix}
        return {"groups": list(self.groups)}, arrays

    @classmethod
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> StackEncoder:
        """Rebuild the encoder."""
        json, arrays = state
        width = sum(features.widths[name] for name in json["groups"])
        if "matrix" not in arrays and width == items.width:
            return cls(tuple(json["groups"]))
        return cls(tuple(json["groups"]), **take(arrays, {"matrix": ("f", width, items.width)}))


@dataclass(frozen=True, eq=False)
class NoEncoder:
    """Everybody is the same."""

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Give everybody the same vector."""
        del history
        n_rows = len(features)
        return Encoded(np.ones((n_rows, 1), dtype=np.float32), {}, np.ones(n_rows, dtype=bool))

    def state(self) -> State:
        """There is nothing to rebuild."""
        return {}, {}

    @classmethod
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> NoEncoder:
        """Rebuild the encoder."""
        del items, features
        del state
        return cls()


def stacked(features: Features, groups: tuple[str, ...]) -> np.ndarray:
    """Put the matrices of some groups side by side, dense."""
    parts = [features.matrices[name] for name in groups]
    width = sum(part.shape[1] for part in parts)
    check_memory(4 * len(features) * width, f"features of {len(features):,} people x {width:,}")
    return np.hstack([part if isinstance(part, np.ndarray) else part.toarray() for part in parts])
