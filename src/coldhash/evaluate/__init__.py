"""Evaluate models on users that they have never seen; `cold_items` has the same for items.

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
from coldhash.evaluate.protocol import (
    PROTOCOLS,
    Protocol,
    Trial,
    make_known_trial,
    make_trial,
    rank,
    scorer,
)

__all__ = [
    "PROTOCOLS",
    "Comparison",
    "ComparisonRow",
    "ComparisonTable",
    "Interval",
    "Judgement",
    "Protocol",
    "Trial",
    "UserHits",
    "accuracy_at",
    "compare",
    "compare_models",
    "hits_at",
    "interval",
    "judge",
    "make_known_trial",
    "make_trial",
    "rank",
    "scorer",
]
