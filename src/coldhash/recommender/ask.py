"""What to ask a person next: items to rate, and fields of the person that are missing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from typing_extensions import TypedDict

from coldhash.arrays.products import SparseRows
from coldhash.errors import SettingError
from coldhash.features.columns import Given
from coldhash.features.groups import FeatureEncoder, Features
from coldhash.features.people import Person
from coldhash.recommender.encoders import ConsensusEncoder, Encoded, PeopleData

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
    known: PeopleData,
    encoded: Encoded,
    n: int,
    kinds: Collection[QuestionKind],
    askable: np.ndarray,
) -> list[Question]:
    """Return the best n questions about items that are askable and missing fields.

    `encoded` is the person without the answers.
    """
    encoder = model.encoder
    if not isinstance(encoder, ConsensusEncoder) or encoder.answers is None:
        raise SettingError(
            f"{model.name} does not learn from answers, so there is nothing to ask",
            hint="a model of MFDCF, fitted with this version",
        )
    part = encoder.answers
    answers = known.answers
    if answers is None:
        answers = SparseRows.of_lists([np.zeros(0, np.int32)], len(model.item_ids))
    seen = answers.indices
    if encoded.history is not None:
        seen = np.concatenate([seen, encoded.history.indices])
    open_list = part.open_list(encoded.vectors[0], answers, seen)
    of_field = {
        name: removed
        for name, removed in _field_gains(model, encoder, open_list.metric, known.features).items()
        if person.get(name) in (None, "")
    }
    total = open_list.variance + sum(of_field.values())  # of all that is open

    def of_items() -> Iterator[Question]:
        for row, removed in part.questions(open_list, askable):
            title = None if model.titles is None else model.titles[row].as_py()
            share, gain = float(part.shares[row]), min(removed / total, 1.0)
            why = f"known to {share:.0%} of people; {_settles(gain)}"
            name = model.item_ids[row]
            yield Question(kind="item", name=name, title=title, gain=gain, known=share, why=why)

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
    """Compute the variance tr(Q ·) of what each field adds to the vectors of training users."""
    gains = {}
    for group, covariances in model.field_covariances.items():
        having = {name for name, has in features.has.items() if has[0]} | {group}
        weights = {name: encoder.weights[name] for name in having & encoder.maps.keys()}
        share = weights[group] / sum(weights.values())
        for name, covariance in covariances.items():
            gains[name] = share**2 * max(float(np.vdot(metric, covariance)), 0.0)
    return gains


def compute_field_covariances(
    features: FeatureEncoder, maps: Mapping[str, np.ndarray]
) -> dict[str, dict[str, np.ndarray]]:
    """Compute the covariance of what each field adds to the vectors of training users, by group.

    A field that is missing counts as its mean in training; the vectors c W of its values vary
    around that. `FittedColumn.mean` holds how frequent values are. A vector cannot be asked for.
    """
    found: dict[str, dict[str, np.ndarray]] = {}
    for group in (name for name in features.groups if name in maps):
        found[group], encoded = {}, features.groups[group]
        for name, column in encoded.columns.items():
            if isinstance(column, Given):
                continue
            places, signs = encoded.places[name]
            says = maps[group][places].astype(np.float64) * signs[:, None]
            mean = column.mean @ says
            found[group][name] = (says.T * column.mean) @ says - np.outer(mean, mean)
    return found
