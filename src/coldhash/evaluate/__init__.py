"""Evaluate models on users and items that they have never seen.

Examples
--------
>>> from coldhash import read
>>> from coldhash.registry import MODELS
>>> sorted(PROTOCOLS)
['ddl', 'du', 'full', 'mdcf', 'sampled-1000']
>>> data, models = read("sample", n_users=200, n_items=60), {"popularity": MODELS["popularity"]()}
>>> compare_models(data, models, splits=2, protocol="full").rows[0].model
'popularity'
"""

from coldhash.evaluate.cold_items import (
    ContentNeighbours,
    ItemTrial,
    choose_neighbours,
    item_accuracy_at,
    make_item_trial,
    model_scores,
)
from coldhash.evaluate.compare import (
    Comparison,
    ComparisonRow,
    ComparisonTable,
    Interval,
    UserHits,
    compare,
    compare_models,
    interval,
)
from coldhash.evaluate.judge import Judgement, judge
from coldhash.evaluate.metrics import accuracy_at, hits_at
from coldhash.evaluate.protocol import PROTOCOLS, Protocol, Trial, make_trial, rank, scorer

__all__ = [
    "PROTOCOLS",
    "Comparison",
    "ComparisonRow",
    "ComparisonTable",
    "ContentNeighbours",
    "Interval",
    "ItemTrial",
    "Judgement",
    "Protocol",
    "Trial",
    "UserHits",
    "accuracy_at",
    "choose_neighbours",
    "compare",
    "compare_models",
    "hits_at",
    "interval",
    "item_accuracy_at",
    "judge",
    "make_item_trial",
    "make_trial",
    "model_scores",
    "rank",
    "scorer",
]
