"""Feedback: what the numbers of a data set are, and which of them make an item a favourite.

Training and evaluation both take the rule from the data, so that they cannot disagree.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from coldhash.data import COUNT_NAMES
from coldhash.errors import SettingError, UnlikelyFavourites, check_choice

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FeedbackKind = Literal["ratings", "counts", "events"]
Scale = tuple[float, float]

MAX_RATING = 1e6  # without a declared scale; times and ids are larger
USUAL_SHARE = 0.6  # of the scale: 4 and 5 of 5, 7 to 10 of 10

_MAX_GRADES = 10  # the highest rating of most scales
_TAIL = 5  # times the median, which the highest count is at least
_MARGIN = 1e-6  # keeps a rating at the bound on its side, whatever its rounding to float32
_LIKELY = (0.01, 0.95)  # share of favourites
_MIN_RATINGS = 100  # of which a share says something


def guess_kind(values: np.ndarray, column: str | None = None) -> FeedbackKind:
    """Guess what values are, at least one; `column` is the name of their column.

    Values that are all equal are events. Whole numbers from 0 upwards are counts if their column is
    called so, or if they have a long tail: the highest is above 10 and at least five times the
    median. Everything else is ratings.
    """
    lowest, highest = values.min(), values.max()
    if lowest == highest:
        return "events"
    if lowest >= 0 and (values == np.floor(values)).all():
        middle = (len(values) - 1) // 2
        median = np.partition(values, middle)[middle]
        long_tail = highest > _MAX_GRADES and highest >= _TAIL * median
        if long_tail or (column or "").lower() in COUNT_NAMES:
            return "counts"
    return "ratings"


@dataclass(frozen=True)
class Feedback:
    """What the numbers of a data set are, and which of them make an item a favourite.

    Parameters
    ----------
    kind : {"ratings", "counts", "events"}
        How good something is, how often something happened, or only that it did.
    favourite : float, optional
        Ratings from this one on. By default those above 60% of the scale, counted from 0, or from
        the lowest rating where that is below 0; everything for counts and events.
    scale : tuple of float, optional
        The lowest and the highest possible rating; by default those of the data.

    Raises
    ------
    SettingError
        If a value is not one of these.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> ratings = csr_array(np.array([[5.0, 4.0, 3.0], [0.0, 2.0, 1.0]]))
    >>> Feedback("ratings", scale=(1, 5)).is_favourite(ratings).tolist()
    [True, True, False, False, False]
    >>> Feedback("ratings", 5, (1, 5)).rule
    '5 and more'
    """

    kind: FeedbackKind = "ratings"
    favourite: float | None = None
    scale: Scale | None = None

    def __post_init__(self) -> None:
        check_choice("feedback", self.kind, get_args(FeedbackKind))
        if self.scale is not None:
            object.__setattr__(self, "scale", check_scale(self.scale))
        if self.favourite is not None:
            object.__setattr__(self, "favourite", _as_number(self.favourite))

    @property
    def bound(self) -> float:
        """What a favourite is above."""
        if self.favourite is not None:
            return self.favourite - _MARGIN * max(abs(self.favourite), 1.0)
        if self.kind != "ratings":
            return -np.inf
        low, high = self.scale or (0.0, 1.0)
        low = min(low, 0.0)
        return low + (USUAL_SHARE + _MARGIN) * (high - low)

    @property
    def rule(self) -> str:
        """The rule in words."""
        if self.favourite is not None:
            return f"{self.favourite:g} and more"
        if self.kind != "ratings":
            return "all"
        return f"above {self.bound:.4g}, {USUAL_SHARE:.0%} of the scale"

    def is_favourite(self, ratings: csr_array) -> np.ndarray:
        """Mark favourites.

        Parameters
        ----------
        ratings : csr_array
            Users x items.

        Returns
        -------
        array of bool
            One for each stored entry, in the order of `ratings.data`.
        """
        return np.asarray(ratings.data > self.bound)

    def warn_if_unlikely(self, n_favourites: int, n_ratings: int) -> None:
        """Warn if the rule makes almost no rating a favourite, or almost every one."""
        share = n_favourites / max(n_ratings, 1)
        likely = _LIKELY[0] <= share <= _LIKELY[1]
        if self.kind == "ratings" and n_ratings >= _MIN_RATINGS and not likely:
            found = f"{n_favourites:,} of {n_ratings:,} ratings ({100 * share:.1f}%) are favourites"
            hint = "favourite=4, or feedback='counts' or 'events'"
            message = f"{found} ({self.rule}); hint: {hint}"
            warnings.warn(message, UnlikelyFavourites, stacklevel=3)


def _as_number(favourite: float) -> float:
    """Return the lowest favourite as a number; it may be written as a text."""
    with suppress(TypeError, ValueError):
        if np.isfinite(float(favourite)):
            return float(favourite)
    raise SettingError(f"favourite={favourite!r}", hint="a number, such as 4: this rating and more")


def check_scale(scale: Scale) -> Scale:
    """Return a scale as two numbers, checked."""
    with suppress(TypeError, ValueError):
        low, high = map(float, scale)
        if -np.inf < low <= high < np.inf:
            return low, high
    raise SettingError(f"scale={scale!r}", hint="the lowest and the highest possible rating")
