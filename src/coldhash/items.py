"""The item side of a model: codes, or real numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from coldhash.codes import pack, unpack


@dataclass(frozen=True, eq=False)
class CodeItems:
    """A code for each item, packed: n_bits / 8 bytes an item, rounded up to 8."""

    packed: np.ndarray  # items x words, uint64
    n_bits: int

    @classmethod
    def of(cls, codes: np.ndarray) -> CodeItems:
        """Pack rows of +1 and -1."""
        return cls(pack(codes), codes.shape[1])

    def __len__(self) -> int:
        return len(self.packed)

    def rows(self, items: Any = slice(None)) -> np.ndarray:
        """Give the codes of some items as +1 and -1, int8."""
        return unpack(self.packed[items], self.n_bits)

    def scores(self, vectors: np.ndarray) -> np.ndarray:
        """Score all items for some users."""
        return vectors @ self.rows().T.astype(np.float32)


@dataclass(frozen=True, eq=False)
class RealItems:
    """A vector of real numbers for each item, dense or sparse."""

    vectors: np.ndarray | csr_array

    def __len__(self) -> int:
        return int(self.vectors.shape[0])

    def scores(self, vectors: np.ndarray) -> np.ndarray:
        """Score all items for some users."""
        return np.asarray(vectors @ self.vectors.T)


Items = CodeItems | RealItems
