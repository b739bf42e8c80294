"""Encoders without a memory: one map of all features, the cell of a table, nothing at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.checks import take
from coldhash.arrays.memory import check_memory
from coldhash.arrays.products import times
from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.recommender.encoders.base import Encoded, Encoder, group_shares, has_nothing
from coldhash.recommender.items import Items


@dataclass(frozen=True, eq=False)
class StackEncoder(Encoder):
    """The features of some groups side by side, sent through one map (None: as they are)."""

    groups: tuple[str, ...]
    matrix: np.ndarray | None = None

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Encode people; a history tells this encoder nothing."""
        del history
        vectors = stack_features(features, self.groups)
        if self.matrix is not None:
            vectors = times(vectors, self.matrix)
        weights = group_shares(features, self.groups)
        return Encoded(vectors.astype(np.float32), weights, has_nothing(features, self.groups))

    def state(self) -> State:
        """Give everything needed to rebuild the encoder."""
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


@dataclass(frozen=True, eq=False)
class NoEncoder(Encoder):
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
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> Self:
        """Rebuild the encoder."""
        del items, features
        del state
        return cls()


@dataclass(frozen=True, eq=False)
class CellEncoder(Encoder):
    """The cell of a table over some columns of one group, beside a constant.

    A missing column counts as its average, so that the person stands in several cells in part.
    """

    group: str
    blocks: tuple[tuple[int, int], ...]  # from and to column within the group

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Encode people; a history tells this encoder nothing."""
        del history
        matrix, has = features.matrices[self.group], features.has[self.group]
        cells = np.ones((len(has), 1), dtype=np.float32)
        for start, end in self.blocks:
            block = np.asarray(matrix[:, start:end])
            cells = (cells[:, :, None] * block[:, None, :]).reshape(len(has), -1)
        vectors = np.hstack([np.ones((len(has), 1), dtype=np.float32), cells])
        return Encoded(vectors, {self.group: has.astype(np.float32)}, ~has)

    def state(self) -> State:
        """Give everything needed to rebuild the encoder."""
        return {"group": self.group, "blocks": [list(block) for block in self.blocks]}, {}

    @classmethod
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> Self:
        """Rebuild the encoder."""
        del items, features
        json, _ = state
        return cls(json["group"], tuple((start, end) for start, end in json["blocks"]))


def stack_features(features: Features, groups: tuple[str, ...]) -> np.ndarray:
    """Put the matrices of some groups side by side, dense."""
    parts = [features.matrices[name] for name in groups]
    width = sum(part.shape[1] for part in parts)
    check_memory(4 * len(features) * width, f"features of {len(features):,} people x {width:,}")
    return np.hstack([part if isinstance(part, np.ndarray) else part.toarray() for part in parts])
