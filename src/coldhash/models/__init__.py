"""Ratings and features -> a fitted model; one method per file. MODELS is the one table of them."""

from __future__ import annotations

from typing import Any, Protocol

from coldhash.data.dataset import Dataset
from coldhash.models.callbacks import Callback
from coldhash.models.mf import MF
from coldhash.models.mfdcf import MFDCF
from coldhash.models.popularity import Popularity
from coldhash.models.ridge import Ridge
from coldhash.recommend import Recommender


class Model(Protocol):
    """The settings of a method: frozen; `fit` gives a `Recommender`."""

    def __init__(self, **settings: Any) -> None: ...

    def fit(self, data: Dataset, seed: int = 0, callback: Callback | None = None) -> Recommender:
        """Learn from a data set."""
        ...


MODELS: dict[str, type[Model]] = {
    "mfdcf": MFDCF,
    "mf": MF,
    "popularity": Popularity,
    "ridge": Ridge,
}
