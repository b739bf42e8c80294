"""Compute answers: what the library returns, with titles, codes and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coldhash.features.people import HISTORY
from coldhash.recommender.encoders import Encoded
from coldhash.recommender.recommender import USER_ID
from coldhash.recommender.results import Row
from coldhash.serve.limits import as_request_errors
from coldhash.serve.registry import ServedModel
from coldhash.serve.schemas import PeopleRequest, Person

RATED = "rated "  # how the library names the contribution of a rating
MAX_REASONS = 3  # that a sentence names


def recommend(served: ServedModel, request: PeopleRequest, people: Sequence[Any]) -> list[Row]:
    """Recommend to people of a request: strangers, or ids of training users."""
    with as_request_errors(request.field):
        if request.is_known:
            encoded = served.model.encode(user_ids=people)
        elif len(people) == 1 and not people[0].get(HISTORY):
            encoded = served.encode(people[0])
        else:
            encoded = served.model.encode(people)
        # requests share the cores, no request takes all of them
        found = served.model.recommend(encoded, **request.arguments, threads=1)
    names = people if request.is_known else [person.get(USER_ID) for person in people]
    lists = found.lists(served.catalogue.describe)
    codes = describe_codes(served, encoded)
    return [
        {"items": items, "user_id": None if name is None else str(name), **code}
        for items, name, code in zip(lists, names, codes, strict=True)
    ]


def describe_codes(served: ServedModel, encoded: Encoded) -> list[Row]:
    """Return the code of each person, the weights of the groups, and what was ignored."""
    n_bits, bits = served.model.items.n_bits, None
    if n_bits is not None:
        # the bytes of codes.pack(signs(vectors)), without its checks
        bits = np.packbits(encoded.vectors >= 0, axis=1, bitorder="little")
    weights = {group: shares.tolist() for group, shares in encoded.weights.items()}
    ignored: list[list[str]] = [[] for _ in encoded.vectors]
    for place, item_id in encoded.ignored:
        ignored[place].append(item_id)
    return [
        {
            "code": None if bits is None else bits[place].tobytes().hex(),
            "n_bits": n_bits,
            "weights": {group: shares[place] for group, shares in weights.items()},
            "fallback": fallback,
            "ignored": ignored[place],
            "model": served.version,
        }
        for place, fallback in enumerate(encoded.fallback.tolist())
    ]


def encode(served: ServedModel, user: Person) -> Row:
    """Return a person's vector and code."""
    with as_request_errors("user"):
        encoded = served.model.encode(user)
    return {"vector": encoded.vectors[0].tolist(), **describe_codes(served, encoded)[0]}


def search(served: ServedModel, text: str, limit: int) -> Row:
    """Return the items that a search finds."""
    return {"items": served.catalogue.search(text, limit), "model": served.version}


def similar(served: ServedModel, item_id: str, k: int) -> Row:
    """Return the items most similar to one."""
    with as_request_errors("item_id"):
        found = served.model.similar_items(item_id, k)
    items = [
        {"title": served.catalogue.title_of(row["item_id"]), "distance": None, **row}
        for row in found
    ]
    return {"items": items, "model": served.version}


def explain(served: ServedModel, user: Person, item_id: str) -> Row:
    """Return what contributed to the score of an item.

    The ids of the most similar training users, which the library returns, are left out: they are
    other people's.
    """
    with as_request_errors("user"):
        found: Row = {**served.model.explain(user, item_id)}
    del found["nearest_users"]
    weights = found.pop("group_weights")
    title = served.catalogue.title_of(found["item_id"])
    why = _explain_in_words(served, found, user)
    return {**found, "weights": weights, "title": title, "why": why, "model": served.version}


def _explain_in_words(served: ServedModel, found: Mapping[str, Any], user: Person) -> str:
    if found["fallback"]:
        return "Nothing usable is known of this person, so popularity decides."
    ordered = sorted(found["contributions"].items(), key=lambda part: -part[1])
    reasons = [_name_reason(served, name, user) for name, value in ordered if value > 0]
    if not reasons:
        return "Nothing that is known of this person speaks for this item."
    rest = len(reasons) - MAX_REASONS
    if rest > 0:
        reasons[MAX_REASONS:] = [f"{rest} smaller reasons" if rest > 1 else "one smaller reason"]
    return f"Because of {_join(reasons)}."


def _name_reason(served: ServedModel, name: str, user: Person) -> str:
    history, item_id = user.get(HISTORY) or {}, name.removeprefix(RATED)
    if name.startswith(RATED) and item_id in history:
        title = served.catalogue.title_of(item_id) or item_id
        return f"your rating of {title} ({history[item_id]:g})"
    fields = [field.name for field in served.fields.values() if field.group == name]
    known = [field for field in fields if user.get(field) not in (None, "")]
    return _join(known) if known else name


def _join(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
