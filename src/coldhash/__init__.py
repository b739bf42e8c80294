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
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a type checker takes an alias for a public name
    from coldhash.data.dataset import Dataset as Dataset
    from coldhash.data.dataset import cold_user_splits as cold_user_splits
    from coldhash.data.dataset import split_by_time as split_by_time
    from coldhash.data.dataset import split_cold_items as split_cold_items
    from coldhash.data.dataset import split_cold_users as split_cold_users
    from coldhash.data.dataset import split_first_ratings as split_first_ratings
    from coldhash.data.ids import Ids as Ids
    from coldhash.data.plan import FeaturePlan as FeaturePlan
    from coldhash.data.ratings import Ratings as Ratings
    from coldhash.data.sources import read as read
    from coldhash.data.tables import TableFile as TableFile
    from coldhash.features.fitting import fit_features as fit_features
    from coldhash.features.groups import FeatureEncoder as FeatureEncoder
    from coldhash.features.groups import Features as Features
    from coldhash.mfdcf.model import MFDCF as MFDCF
    from coldhash.recommender.persistence import load as load
    from coldhash.recommender.recommender import Recommender as Recommender
    from coldhash.recommender.results import Recommendations as Recommendations
    from coldhash.registry import MODELS as MODELS

__version__ = "0.2.0"

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
    "cold_user_splits": "coldhash.data.dataset",
    "fit_features": "coldhash.features.fitting",
    "load": "coldhash.recommender.persistence",
    "read": "coldhash.data.sources",
    "split_by_time": "coldhash.data.dataset",
    "split_cold_items": "coldhash.data.dataset",
    "split_cold_users": "coldhash.data.dataset",
    "split_first_ratings": "coldhash.data.dataset",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'coldhash' has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(_HOME[name]), name))


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
