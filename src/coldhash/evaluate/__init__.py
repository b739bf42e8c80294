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

from coldhash.evaluate.compare import Comparison as Comparison
from coldhash.evaluate.compare import ComparisonRow as ComparisonRow
from coldhash.evaluate.compare import ComparisonTable as ComparisonTable
from coldhash.evaluate.compare import Interval as Interval
from coldhash.evaluate.compare import UserHits as UserHits
from coldhash.evaluate.compare import compare as compare
from coldhash.evaluate.compare import compare_models as compare_models
from coldhash.evaluate.compare import interval as interval
from coldhash.evaluate.compare import judge_held_out as judge_held_out
from coldhash.evaluate.metrics import Judgement as Judgement
from coldhash.evaluate.metrics import accuracy_at as accuracy_at
from coldhash.evaluate.metrics import judge as judge
from coldhash.evaluate.protocol import PROTOCOLS as PROTOCOLS
from coldhash.evaluate.protocol import Protocol as Protocol
from coldhash.evaluate.protocol import Trial as Trial
from coldhash.evaluate.protocol import make_known_trial as make_known_trial
from coldhash.evaluate.protocol import make_trial as make_trial
from coldhash.evaluate.protocol import rank as rank
from coldhash.evaluate.protocol import scorer as scorer
