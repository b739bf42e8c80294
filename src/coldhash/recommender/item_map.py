"""ItemMap: what a new item's content and first ratings say about its code.

An item's code minimises  d G d' - 2 d l'  with G the Gram of the users and l, the pulls, the sum of
what its ratings show: the item step of the fit, for one item. Of a new item l is not known yet. Its
content says l̂ and, of one rating, ξ̂ = t h, the target times the rater's vector. The best linear
estimate of the rest, given the sum z of the n ratings there are, is

    (z - n ξ̂) (S₁ + (n-1) S₂)⁻¹ C

with S₁ the covariance of one ξ, S₂ that of two ξ of the same item and C that of ξ and l, all around
what content says and taken from the training items: the twin of `HistoryPart`. An item with as many
ratings as the average one is an item like any other: its l is the sum itself.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coldhash.arrays.checks import check_places, take
from coldhash.arrays.products import times
from coldhash.data.feedback import Feedback
from coldhash.data.ratings import RatingTarget
from coldhash.features.groups import State

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_ARRAYS = ("columns", "pairs", "average", "weights", "shared", "left", "right", "to_pulls", "gram")
NUMBERS = ("stretch", "plenty")


@dataclass(frozen=True, eq=False)
class ItemMap:
    """From content, and first ratings, to the pulls on an item's code."""

    columns: np.ndarray  # the columns of content that count
    pairs: np.ndarray  # n x 2: places among those whose product counts too
    average: np.ndarray  # of what counts: stands in for an item of which nothing is known
    weights: np.ndarray  # what counts, and a constant -> the sum of what ratings show, and ξ̂
    shared: np.ndarray  # how much of each direction two ratings share
    left: np.ndarray
    right: np.ndarray
    to_pulls: np.ndarray  # from the sum of the raters' vectors to the pulls of the item step
    gram: np.ndarray  # G of the item step
    stretch: float  # by which items differ more than content tells
    plenty: float  # ratings with which an item is no longer new
    target: RatingTarget

    @property
    def n_bits(self) -> int:
        """How long the codes are."""
        return len(self.gram)

    def pulls(
        self, content: csr_array, vectors: np.ndarray, ratings: csr_array, gains: np.ndarray
    ) -> np.ndarray:
        """Return the pulls on new items' codes.

        `ratings` are raters x items, `vectors` the raters', `gains` (items x 1) those of the levels
        that the items have, or 1 in a model without levels. The pulls are stretched by as much as
        content leaves open, so that a new item stands out among the others as they do.
        """
        known = prepared(content, self.columns, self.pairs)
        known[np.diff(content.indptr) == 0] = self.average
        says = times(known, self.weights)
        summed, one = says[:, : self.n_bits], says[:, self.n_bits :]
        given = self.target(ratings).T.tocsr()
        counts = np.diff(given.indptr).astype(np.float32)[:, None]
        shown = times(given, vectors)
        surprise = times(shown - counts * one, self.left)
        shrunk = surprise / (1 + np.maximum(counts - 1, 0) * self.shared)
        newness = np.maximum(1 - counts / np.float32(self.plenty), 0)
        estimate = (1 + (self.stretch - 1) * newness) * (summed + times(shrunk, self.right))
        whole = np.where(newness > 0, estimate, shown / gains)
        return times(whole.astype(np.float32), self.to_pulls)

    def state(self) -> State:
        """Return everything as JSON and arrays, for a model file."""
        json: dict[str, Any] = {name: getattr(self, name) for name in NUMBERS}
        return json | {"target": asdict(self.target)}, {n: getattr(self, n) for n in _ARRAYS}

    @classmethod
    def restore(cls, state: State, n_bits: int, width: int) -> ItemMap:
        """Rebuild the map to codes of `n_bits` from content of `width` numbers."""
        json, arrays = state
        own: dict[str, Any] = take(
            arrays, {"columns": ("i", "columns"), "pairs": ("i", "pairs", 2)}
        )
        n_columns = len(own["columns"])
        known = n_columns + len(own["pairs"]) + 1
        own |= take(
            arrays,
            {
                "average": ("f", known),
                "weights": ("f", known, 2 * n_bits),
                "shared": ("f", "rank"),
                "left": ("f", n_bits, "rank"),
                "right": ("f", "rank", n_bits),
                "to_pulls": ("f", n_bits, n_bits),
                "gram": ("f", n_bits, n_bits),
            },
        )
        for name, end in (("columns", width), ("pairs", n_columns)):
            check_places(name, own[name], end)
        own |= {name: float(json[name]) for name in NUMBERS}
        feedback = Feedback(**json["target"]["feedback"])
        return cls(**own, target=RatingTarget(**{**json["target"], "feedback": feedback}))


def prepared(content: csr_array, columns: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return the columns that count, the products of some pairs, and a constant 1."""
    chosen = np.asarray(content[:, columns].toarray(), dtype=np.float32)
    products = chosen[:, pairs[:, 0]] * chosen[:, pairs[:, 1]]
    return np.hstack([chosen, products, np.ones((len(chosen), 1), dtype=np.float32)])
