"""What to ask a person next: items to rate, and fields of the person that are missing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypedDict, get_args

import numpy as np

from coldhash.arrays.products import SparseRows
from coldhash.errors import SettingError
from coldhash.features.columns import Given
from coldhash.features.groups import Features
from coldhash.features.people import Person
from coldhash.recommender.encoders import ConsensusEncoder, Encoded

if TYPE_CHECKING:
    from coldhash.recommender.recommender import Recommender

QuestionKind = Literal["items", "fields"]
ITEMS_AND_FIELDS: tuple[QuestionKind, ...] = get_args(QuestionKind)


class Question(TypedDict):
    """What to ask a person."""

    kind: Literal["item", "field"]
    name: str  # the item id, or the field
    title: str | None
    gain: float
    known: float | None
    why: str


def find_questions(
    model: Recommender,
    person: Person,
    features: Features,
    encoded: Encoded,
    answers: SparseRows | None,
    n: int,
    kinds: Collection[QuestionKind],
    rows: np.ndarray,
) -> list[Question]:
    """Return the best n questions about items of `rows` and missing fields."""
    encoder = model.encoder
    if not isinstance(encoder, ConsensusEncoder) or encoder.answers is None:
        raise SettingError(
            f"{model.name} does not learn from answers, so there is nothing to ask",
            hint="a model of MFDCF, fitted with this version",
        )
    part = encoder.answers
    if answers is None:
        answers = SparseRows.of_lists([np.zeros(0, np.int32)], len(model.item_ids))
    seen = answers.indices
    if encoded.history is not None:
        seen = np.concatenate([seen, encoded.history.indices])
    open_list = part.open_list(encoded.vectors[0], answers, seen)
    of_field = {
        name: removed
        for name, removed in _field_gains(model, encoder, open_list.metric, features).items()
        if person.get(name) in (None, "")
    }
    total = open_list.variance + sum(of_field.values())  # of all that is open

    def of_items() -> Iterator[Question]:
        for row, removed in part.questions(open_list, rows):
            title = None if model.titles is None else model.titles[row].as_py()
            known, gain = float(part.shares[row]), min(removed / total, 1.0)
            why = f"known to {known:.0%} of people; {_settles(gain)}"
            name = model.item_ids[row]
            yield Question(kind="item", name=name, title=title, gain=gain, known=known, why=why)

    def of_fields() -> Iterator[Question]:
        for name, removed in sorted(of_field.items(), key=lambda pair: -pair[1]):
            gain = removed / total
            why = f"a field that is missing; {_settles(gain)}"
            yield Question(kind="field", name=name, title=None, gain=gain, known=None, why=why)

    found = [each() for kind, each in (("items", of_items), ("fields", of_fields)) if kind in kinds]
    return list(islice(merge(*found, key=lambda question: -question["gain"]), n))


def _settles(gain: float) -> str:
    return f"expected to settle {gain:.1%} of how people like you differ"


def _field_gains(
    model: Recommender, encoder: ConsensusEncoder, metric: np.ndarray, features: Features
) -> dict[str, float]:
    """Compute the variance tr(Q ·) of what each field adds to the vectors of training users.

    A field that is missing counts as its mean in training; the vectors c W of its values vary
    around that. `FittedColumn.mean` holds how frequent values are. A vector cannot be asked for.
    """
    gains = {}
    for group, encoded in model.features.groups.items():
        having = {name for name, has in features.has.items() if has[0]} | {group}
        weights = {name: encoder.weights[name] for name in having & encoder.maps.keys()}
        if group not in weights:
            continue
        share = weights[group] / sum(weights.values())
        for name, column in encoded.columns.items():
            if isinstance(column, Given):
                continue
            places, signs = encoded.places[name]
            says = encoder.maps[group][places].astype(np.float64) * signs[:, None]
            squares = (says @ metric * says).sum(axis=1)
            mean = column.mean @ says
            removed = float(column.mean @ squares - mean @ metric @ mean)
            gains[name] = share**2 * max(removed, 0.0)
    return gains
