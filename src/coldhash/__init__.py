"""Recommend to people you have never seen, with a few bytes per item.

The public names are listed in `_HOME`; each is imported when it is first used, so that
`import coldhash` costs next to nothing.

Examples
--------
>>> import coldhash as ch
>>> model = ch.MFDCF(n_bits=32).fit(ch.read("sample", n_users=200, n_items=60))
>>> len(model.recommend({"age": 30}, k=3)), "ridge" in ch.MODELS
(3, True)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coldhash.data.dataset import Dataset
    from coldhash.data.ids import Ids
    from coldhash.data.plan import FeaturePlan
    from coldhash.data.ratings import Ratings
    from coldhash.data.sources import read
    from coldhash.data.splits import (
        cold_user_splits,
        split_by_time,
        split_cold_items,
        split_cold_users,
        split_first_ratings,
    )
    from coldhash.data.tables import TableFile
    from coldhash.features.fitting import fit_features
    from coldhash.features.groups import FeatureEncoder, Features
    from coldhash.mfdcf.model import MFDCF
    from coldhash.recommender.persistence import load
    from coldhash.recommender.recommender import Recommender
    from coldhash.recommender.results import Recommendations
    from coldhash.registry import MODELS

__version__ = "0.1.0"

_HOME = {
    "Dataset": "coldhash.data.dataset",
    "FeatureEncoder": "coldhash.features.groups",
    "FeaturePlan": "coldhash.data.plan",
    "Features": "coldhash.features.groups",
    "Ids": "coldhash.data.ids",
    "MFDCF": "coldhash.mfdcf.model",
    "MODELS": "coldhash.registry",
    "Ratings": "coldhash.data.ratings",
    "Recommendations": "coldhash.recommender.results",
    "Recommender": "coldhash.recommender.recommender",
    "TableFile": "coldhash.data.tables",
    "cold_user_splits": "coldhash.data.splits",
    "fit_features": "coldhash.features.fitting",
    "load": "coldhash.recommender.persistence",
    "read": "coldhash.data.sources",
    "split_by_time": "coldhash.data.splits",
    "split_cold_items": "coldhash.data.splits",
    "split_cold_users": "coldhash.data.splits",
    "split_first_ratings": "coldhash.data.splits",
}

__all__ = [
    "MFDCF",
    "MODELS",
    "Dataset",
    "FeatureEncoder",
    "FeaturePlan",
    "Features",
    "Ids",
    "Ratings",
    "Recommendations",
    "Recommender",
    "TableFile",
    "cold_user_splits",
    "fit_features",
    "load",
    "read",
    "split_by_time",
    "split_cold_items",
    "split_cold_users",
    "split_first_ratings",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'coldhash' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
