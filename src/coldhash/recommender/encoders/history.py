"""What ratings just given say about somebody."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.checks import Forms, take
from coldhash.arrays.products import times
from coldhash.data.ratings import RatingTarget
from coldhash.features.groups import FeatureEncoder, State
from coldhash.recommender.items import Items

USUAL = 1.0  # weight of a rating of a new item: that of an average item
_ARRAYS = ("item_weights", "average", "shared", "left", "right")


@dataclass(frozen=True, eq=False)
class HistoryPart:
    """How ratings just given move a user vector away from what the features say.

    One given rating of item i shows  ξ = v_i √t [d_i, c_i],  with t the rating's target, d_i the
    item's code, c_i the main part of its content, if any, and v_i a weight that discounts popular
    items. The best linear estimate of a user's deviation from what the features say, given the sum
    z of n of these, is

        (z - n E[ξ|x]) (S₁ + (n-1) S₂)⁻¹ C

    with S₁ the covariance of one ξ, S₂ the covariance of two ξ of the same user (what they share)
    and C the covariance of ξ and the deviation, all taken from the training users' own ratings. S₁
    and S₂ are made diagonal together once, so any n costs two small products.
    """

    codes: Items
    content: np.ndarray | None  # items x a few
    item_weights: np.ndarray  # v
    expected: dict[str, np.ndarray]  # maps from features to E[ξ|x], by group
    average: np.ndarray  # E[ξ] of somebody unknown
    shared: np.ndarray  # λ: how much of each direction two ratings share
    left: np.ndarray
    right: np.ndarray
    target: RatingTarget

    def deviation(self, history: csr_array, expected: np.ndarray) -> np.ndarray:
        """Estimate how far people are from what their features say."""
        counts = np.diff(history.indptr).astype(np.float32)[:, None]
        return self._estimate(self._shown(history) - counts * expected, counts)

    def surprise(self, history: csr_array, n_given: int) -> np.ndarray:
        """Say what each row's ratings, of `n_given` in all, add before what was expected."""
        counts = np.full((history.shape[0], 1), n_given, dtype=np.float32)
        return self._estimate(self._shown(history), counts)

    def _shown(self, history: csr_array) -> np.ndarray:
        """Sum up what the ratings of each person show: z."""
        items, columns = np.unique(history.indices, return_inverse=True)
        shown = np.sqrt(self.target(history.data)) * self.item_weights[history.indices]
        signals = csr_array((shown, columns, history.indptr), shape=(history.shape[0], len(items)))
        return times(signals, evidence(self.codes, self.content, items))

    def _estimate(self, surprise: np.ndarray, counts: np.ndarray) -> np.ndarray:
        shrunk = times(surprise, self.left) / (1 + np.maximum(counts - 1, 0) * self.shared)
        return times(shrunk, self.right)

    def follow_items(
        self, items: Items, features: FeatureEncoder, rows: np.ndarray, n_new: int
    ) -> HistoryPart:
        """Return the part for other items: `rows` of those it had, then `n_new` more."""
        new = np.full(n_new, USUAL, dtype=self.item_weights.dtype)
        return replace(
            self,
            codes=items,
            content=None if features.preference is None else features.preference.main,
            item_weights=np.concatenate([self.item_weights[rows], new]),
        )

    def state(self) -> State:
        """Return what only this part knows: codes and content are the model's."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {f"expected/{name}": array for name, array in self.expected.items()}
        return {"target": asdict(self.target)}, arrays

    @classmethod
    def restore(cls, state: State, codes: Items, features: FeatureEncoder) -> HistoryPart:
        """Rebuild the part."""
        json, arrays = state
        content = None if features.preference is None else features.preference.main
        shown = codes.width + (0 if content is None else content.shape[1])
        forms: Forms = {
            "item_weights": ("f", len(codes)),
            "average": ("f", shown),
            "shared": ("f", "rank"),
            "left": ("f", shown, "rank"),
            "right": ("f", "rank", codes.width),
        }
        own = take(arrays, forms)
        widths = features.widths
        forms = {f"expected/{name}": ("f", width, shown) for name, width in widths.items()}
        maps = dict(zip(widths, take(arrays, forms).values(), strict=True))
        target = RatingTarget(**json["target"])
        return cls(codes=codes, content=content, expected=maps, target=target, **own)


def evidence(codes: Items, content: np.ndarray | None, items: Any) -> np.ndarray:
    """Give what ratings of some items show: their codes and, if there is any, their content."""
    shown = codes.rows(items).astype(np.float32)
    return shown if content is None else np.hstack([shown, content[items]])
