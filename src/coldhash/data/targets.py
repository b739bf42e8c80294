"""What a rating is worth to a model that predicts all entries, the unknown ones as 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from coldhash.errors import SettingError

FAVOURITE = 0.6  # of the highest rating: 4 and 5 of 5, 7 to 10 of 10

TargetKind = Literal["favourite", "share", "known"]


@dataclass(frozen=True)
class RatingTarget:
    """From a rating to its target, between 0 and 1.

    `favourite`: 1 for a favourite, `other` for any other rating, a stored 0 included: to have been
    chosen is worth something. `share`: rating / highest. `known`: 1 for every rating.
    """

    kind: TargetKind
    highest: float
    other: float = 0.3

    def __post_init__(self) -> None:
        if self.kind not in get_args(TargetKind):
            raise SettingError(
                f"target={self.kind!r}", hint=f"one of {', '.join(get_args(TargetKind))}"
            )

    def __call__(self, ratings: np.ndarray) -> np.ndarray:
        """Give the targets as float32."""
        if self.kind == "known":
            return np.ones(len(ratings), dtype=np.float32)
        if self.kind == "share":
            return (ratings / max(self.highest, 1e-9)).astype(np.float32)
        marked = is_favourite(ratings, self.highest)
        return np.where(marked, np.float32(1), np.float32(self.other))


def is_favourite(ratings: np.ndarray, highest: float) -> np.ndarray:
    """Mark ratings above 0.6 of the highest possible one."""
    # the margin keeps a rating that is exactly at the bound out, whatever float32 made of it
    return ratings > FAVOURITE * highest * (1 + 1e-6)
