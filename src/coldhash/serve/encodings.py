"""Vectors of strangers who were asked about lately.

Many strangers are alike: a few fields with a few values each. Encoding one takes longer than the
search among some thousand items, so vectors are kept for a while. A person's vector depends on
nobody else, so what is kept is what would be computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import orjson

from coldhash.recommender.encoders import Encoded
from coldhash.recommender.recommender import USER_ID, Recommender

KEPT = 4096  # people
LONGEST = 500  # letters of JSON: what says more than that is nobody else's


class Encodings:
    """Encodes people without a history, each kind of them once."""

    def __init__(self, model: Recommender) -> None:
        self._model = model
        # by JSON, in which 1, 1.0 and true differ, as they do for the model
        self._kept: Callable[[str], Encoded] = lru_cache(KEPT)(
            lambda spelled: model.encode(orjson.loads(spelled))
        )

    def of(self, person: Mapping[str, Any]) -> Encoded:
        """Give a person's vector; it is shared, so nobody may change it."""
        fields = {name: value for name, value in person.items() if name != USER_ID}
        # as text: the bytes would keep the 4 KB in which they were written
        spelled = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS).decode()
        return self._kept(spelled) if len(spelled) <= LONGEST else self._model.encode(fields)
