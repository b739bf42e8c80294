"""The cell of a table over a few columns, such as age x gender."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.recommender.encoders.encoded import Encoded
from coldhash.recommender.items import Items


@dataclass(frozen=True, eq=False)
class CellEncoder:
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
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> CellEncoder:
        """Rebuild the encoder."""
        del items, features
        json, _ = state
        return cls(json["group"], tuple((start, end) for start, end in json["blocks"]))
