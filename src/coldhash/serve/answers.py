"""From a request to an answer, on one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coldhash.features.people import HISTORY
from coldhash.recommender.encoders import Encoded
from coldhash.recommender.recommender import USER_ID, Score
from coldhash.serve.errors import blaming
from coldhash.serve.registry import Served

RATED = "rated "  # how the library names what a rating contributes
SHOWN = 3  # parts that a sentence names


@dataclass(frozen=True, kw_only=True)
class RecommendOptions:
    """The options of a request; the names are those of `Recommender.recommend`."""

    k: int = 10
    exclude: Sequence[str] | None = None
    candidates: Sequence[str] | None = None
    score: Score = "real"
    exclude_seen: bool = True


def recommend(
    served: Served,
    users: list[dict[str, Any]] | None,
    user_ids: Sequence[str] | None,
    options: RecommendOptions,
    at: str,
) -> list[dict[str, Any]]:
    """Answer some people: strangers, or users of the training data. `at` names them in errors."""
    with blaming(at):
        if users is not None and len(users) == 1 and not users[0].get(HISTORY):
            encoded = served.encodings.of(users[0])
        else:
            encoded = served.model.encode(users, user_ids=user_ids)
        # one thread: requests share the cores, not one request all of them
        answer = served.model.recommend(encoded, threads=1, **vars(options))
    names: Sequence[object | None] = encoded.names
    if users is not None:
        names = [user.get(USER_ID) for user in users]
    codes = coded(served, encoded, known=users is None)
    lists = answer.lists(served.catalogue.describe)
    return [
        {"items": items, "user_id": None if name is None else str(name), **code}
        for items, name, code in zip(lists, names, codes, strict=True)
    ]


def coded(served: Served, encoded: Encoded, known: bool = False) -> list[dict[str, Any]]:
    """Give for each person the code and how it came about; for `known` users that is not kept."""
    n_bits = served.n_bits
    # the bytes that codes.pack(signs(vectors)) has, without its checks
    bits = None if n_bits is None else np.packbits(encoded.vectors >= 0, axis=1, bitorder="little")
    weights = {} if known else {name: each.tolist() for name, each in encoded.weights.items()}
    ignored: dict[int, list[str]] = {}
    for place, item_id in encoded.ignored:
        ignored.setdefault(place, []).append(item_id)
    return [
        {
            "code": None if bits is None else bits[place].tobytes().hex(),
            "n_bits": n_bits,
            "weights": {name: shares[place] for name, shares in weights.items()},
            "fallback": fallback,
            "ignored": ignored.get(place, []),
            "model": served.version,
        }
        for place, fallback in enumerate(encoded.fallback.tolist())
    ]


def encode(served: Served, user: Mapping[str, Any]) -> dict[str, Any]:
    """Give a person's vector and code."""
    with blaming("user"):
        encoded = served.model.encode(user)
    return {"vector": encoded.vectors[0].tolist(), **coded(served, encoded)[0]}


def similar(served: Served, item_id: str, k: int) -> dict[str, Any]:
    """Give the items most like one."""
    with blaming("item_id"):
        found = served.model.similar_items(item_id, k)
    items = [
        {
            "item_id": row["item_id"],
            "title": served.catalogue.title_of(row["item_id"]),
            "rank": row["rank"],
            "score": row["score"],
            "distance": row.get("distance"),
        }
        for row in found
    ]
    return {"items": items, "model": served.version}


def explain(served: Served, user: Mapping[str, Any], item_id: str) -> dict[str, Any]:
    """Say what carried an item for a person.

    The ids of the training users most like the person, which the library knows, are not told: they
    are other people's.
    """
    with blaming("user"):
        found = served.model.explain(user, item_id)
    title = served.catalogue.title_of(found["item_id"])
    return {
        "item_id": found["item_id"],
        "title": title,
        "score": found["score"],
        "contributions": found["contributions"],
        "weights": found["group_weights"],
        "fallback": found["fallback"],
        "ignored": found["ignored"],
        "why": why(served, found, user),
        "model": served.version,
    }


def why(served: Served, found: Mapping[str, Any], user: Mapping[str, Any]) -> str:
    """Say in a sentence what spoke for an item, the strongest reason first."""
    if found["fallback"]:
        return "Nothing usable is known of this person, so popularity decides."
    ordered = sorted(found["contributions"].items(), key=lambda part: -part[1])
    reasons = [_reason(served, name, user) for name, value in ordered if value > 0]
    if not reasons:
        return "Nothing that is known of this person speaks for this item."
    shown, rest = reasons[:SHOWN], len(reasons) - SHOWN
    more = (
        f", and {rest} smaller reasons"
        if rest > 1
        else ", and one smaller reason"
        if rest > 0
        else ""
    )
    return f"Because of {_listed(shown) if not more else ', '.join(shown)}{more}."


def _reason(served: Served, name: str, user: Mapping[str, Any]) -> str:
    history = user.get(HISTORY) or {}
    item_id = name.removeprefix(RATED)
    if name.startswith(RATED) and item_id in history:
        title = served.catalogue.title_of(item_id) or item_id
        return f"your rating of {title} ({history[item_id]:g})"
    said = [field for field in served.fields.values() if field.group == name]
    told = [field.name for field in said if user.get(field.name) not in (None, "")]
    return _listed(told) if told else name


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
