"""Encoders: what is known of people -> user vectors; and what to ask a person next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, get_args

import numpy as np
from typing_extensions import TypedDict

from coldhash.arrays.checks import Forms, part_of, take
from coldhash.arrays.products import SparseRows, read_only, times
from coldhash.data.ids import Ids
from coldhash.errors import SettingError
from coldhash.features.columns import Given
from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.features.people import Person
from coldhash.recommender.history import AnswerPart, HistoryPart
from coldhash.recommender.items import Items

if TYPE_CHECKING:
    from coldhash.recommender.recommender import Recommender

QuestionKind = Literal["items", "fields"]
ITEMS_AND_FIELDS: tuple[QuestionKind, ...] = get_args(QuestionKind)
SELF_WEIGHTINGS = 3  # alternations of weights and consensus; more change nothing


class PeopleData(NamedTuple):
    """What is known of people before they are encoded."""

    features: Features
    history: SparseRows | None
    ignored: list[tuple[int, str]]  # rated items that the model does not know
    answers: SparseRows | None
    names: list[str]  # empty: by their place


@dataclass(eq=False)
class Encoded:
    """People as vectors.

    Parameters
    ----------
    vectors
        People x width.
    weights
        The share of each feature group in the vectors, by group.
    fallback
        Who had nothing usable: they get the popular items.
    ignored
        Rated items that the model does not know: the person's place, and the item id.
    history
        What people have rated (people x items), if anything is known of it.
    names
        What people are called; empty: by their place.
    disliked
        What people have rated below what it gets on average (people x items), where that counts.
    """

    vectors: np.ndarray
    weights: dict[str, np.ndarray]
    fallback: np.ndarray
    ignored: list[tuple[int, str]] = field(default_factory=list)
    history: SparseRows | None = None
    names: list[str] = field(default_factory=list)
    disliked: SparseRows | None = None


class Encoder(ABC):
    """From features and histories (people x items, or None) to vectors."""

    answers: AnswerPart | None = None  # how answers to questions move vectors; None: not at all

    @abstractmethod
    def encode(self, features: Features, history: SparseRows | None) -> Encoded:
        """Compute the vectors of people."""

    def explain(self, known: PeopleData, encoded: Encoded, item_ids: Ids) -> dict[str, np.ndarray]:
        """Return named vectors that add up to that of one person."""
        del known, item_ids
        return {"all that is known": encoded.vectors[0]}

    def follow_items(self, items: Items, rows: np.ndarray, n_new: int) -> Self:
        """Return the encoder for other items: `rows` of those it had, then `n_new` more."""
        del items, rows, n_new
        return self

    @abstractmethod
    def state(self) -> State:
        """Return what only the encoder knows, as JSON and arrays."""

    @classmethod
    @abstractmethod
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> Self:
        """Rebuild the encoder from its state and from what the model has anyway."""


def scale_rows(weights: np.ndarray) -> np.ndarray:
    """Scale rows of weights so that they add up to 1; a row of zeros stays."""
    totals = weights.sum(axis=1, keepdims=True)
    return np.asarray(weights / np.where(totals > 0, totals, 1), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class ConsensusEncoder(Encoder):
    """The weighted mean of what each group says, moved by a history if there is one.

    Group weights are a person's own: they start from the training weights of the groups the person
    has, and groups that disagree with the consensus lose weight (28). Nobody else enters.
    """

    maps: dict[str, np.ndarray]
    weights: dict[str, float]
    average: np.ndarray  # the vector of somebody of whom nothing is known but a history
    history: HistoryPart
    answers: AnswerPart

    def encode(self, features: Features, history: SparseRows | None) -> Encoded:
        """Compute the weighted mean of what groups say, moved by a history."""
        said = {name: self._say(features, name) for name in self.maps if name in features.has}
        if len(said) == 1:  # all of it, or none
            ((name, vectors),) = said.items()
            has = features.has[name] & (self.weights[name] > 0)
            shares, fallback = has[:, None].astype(np.float32), ~has
        else:
            shares = self._shares(features, said)
            vectors = np.zeros((len(features), len(self.average)), dtype=np.float32)
            for at, say in enumerate(said.values()):
                vectors += shares[:, at : at + 1] * say
            fallback = np.asarray(~shares.any(axis=1))
        vectors[fallback] = self.average
        disliked = None
        if history is not None:
            moved, disliked = self.history.apply(history)
            vectors += moved
            fallback &= history.counts() == 0
        weights = {name: shares[:, at] for at, name in enumerate(said)}
        return Encoded(vectors, weights, fallback, disliked=disliked)

    def explain(self, known: PeopleData, encoded: Encoded, item_ids: Ids) -> dict[str, np.ndarray]:
        """Return what each group, each rated item and each answer adds."""
        parts = {
            name: share[0] * self._say(known.features, name)[0]
            for name, share in encoded.weights.items()
            if share[0] > 0
        }
        if not parts:
            parts["the average user"] = self.average
        for said, rows, part in (
            ("rated", known.history, self.history),
            ("asked", known.answers, self.answers),
        ):
            if rows is not None:
                names = (f"{said} {item_ids[row]}" for row in rows.indices)
                parts |= zip(names, part.split(rows), strict=True)
        return parts

    def _say(self, features: Features, group: str) -> np.ndarray:
        return times(features.matrices[group], self.maps[group])

    def follow_items(self, items: Items, rows: np.ndarray, n_new: int) -> ConsensusEncoder:
        """Return the encoder for other items: `rows` of those it had, then `n_new` more."""
        history = self.history.follow_items(items, rows, n_new)
        answers = self.answers.follow_items(history, rows, n_new)
        return replace(self, history=history, answers=answers)

    def _shares(self, features: Features, said: dict[str, np.ndarray]) -> np.ndarray:
        """Weigh each person's groups; rows add up to 1, or to 0 where a person has none."""
        names, says = list(said), list(said.values())
        if not names:
            return np.zeros((len(features), 1), dtype=np.float32)
        has = np.column_stack([features.has[name] for name in names])
        shares = scale_rows(has * np.array([self.weights[name] for name in names], np.float32))
        for _ in range(SELF_WEIGHTINGS):
            consensus = sum(shares[:, g : g + 1] * say for g, say in enumerate(says))
            apart = np.column_stack([np.linalg.norm(consensus - say, axis=1) for say in says])
            # one group alone, or two, agree with their mean in proportion: nothing to change
            several = has.sum(axis=1) > 2
            shares[several] = scale_rows(has / np.maximum(apart, 1e-6))[several]
        return shares

    def state(self) -> State:
        """Return what only the encoder knows."""
        arrays = {f"map/{name}": matrix for name, matrix in self.maps.items()}
        arrays["average"] = self.average
        json: dict[str, Any] = {"weights": self.weights}
        for prefix in ("history", "answers"):
            json[prefix], more = getattr(self, prefix).state()
            arrays |= {f"{prefix}/{name}": array for name, array in more.items()}
        return json, arrays

    @classmethod
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> ConsensusEncoder:
        """Rebuild the encoder."""
        json, arrays = state
        widths = features.widths
        forms: Forms = {f"map/{name}": ("f", widths[name], items.width) for name in widths}
        own = take(arrays, forms | {"average": ("f", items.width)})
        average = own.pop("average")

        history = HistoryPart.restore((json["history"], part_of(arrays, "history/")), items)
        answers = AnswerPart.restore((json["answers"], part_of(arrays, "answers/")), history)
        maps = dict(zip(widths, map(read_only, own.values()), strict=True))
        return cls(maps, json["weights"], average, history, answers)


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
    if not isinstance(encoder, ConsensusEncoder):
        raise SettingError(
            f"{model.name} does not learn from answers, so there is nothing to ask",
            hint="a model of MFDCF, fitted with this version",
        )
    nothing = SparseRows.of_lists([np.zeros(0, np.int32)], len(model.item_ids))
    part, answers, history = encoder.answers, known.answers or nothing, known.history or nothing
    seen = np.concatenate([answers.indices, history.indices])
    open_list = part.open_list(encoded.vectors[0], answers, seen)
    removed_by = {}  # the variance tr(C'C ·) of what each field adds to training users' vectors
    for (group, name), covariance in model.field_covariances.items():
        if person.get(name) in (None, ""):
            having = {name for name, has in known.features.has.items() if has[0]} | {group}
            weights = [encoder.weights[name] for name in encoder.maps if name in having]
            removed = max(float(np.vdot(open_list.metric, covariance)), 0.0)
            removed_by[name] = (encoder.weights[group] / sum(weights)) ** 2 * removed
    variance = max(float(np.vdot(open_list.metric, open_list.covariance)), 1e-30)
    total = variance + sum(removed_by.values())  # of all that is open

    def make_question(about: int | str, removed: float) -> Question:
        gain = min(removed / total, 1.0)
        settles = f"expected to settle {gain:.1%} of how people like you differ"
        if isinstance(about, str):
            why = f"a field that is missing; {settles}"
            return Question(kind="field", name=about, title=None, gain=gain, known=None, why=why)
        title = None if model.titles is None else model.titles[about].as_py()
        share, name = float(part.shares[about]), model.item_ids[about]
        why = f"known to {share:.0%} of people; {settles}"
        return Question(kind="item", name=name, title=title, gain=gain, known=share, why=why)

    of_fields = sorted(removed_by.items(), key=lambda pair: -pair[1])
    found: dict[str, Iterable[tuple[int | str, float]]]
    found = {"items": part.questions(open_list, askable), "fields": of_fields}
    chosen = merge(*(found[kind] for kind in found if kind in kinds), key=lambda pair: -pair[1])
    return [make_question(*each) for each in islice(chosen, n)]


def compute_field_covariances(
    features: FeatureEncoder, encoder: Encoder
) -> dict[tuple[str, str], np.ndarray]:
    """Compute the covariance of what each field of each group adds to training users' vectors.

    A field that is missing counts as its mean in training; the vectors c W of its values vary
    around that. `FittedColumn.mean` holds how frequent values are. A vector cannot be asked for.
    """
    found = {}
    for group, matrix in encoder.maps.items() if isinstance(encoder, ConsensusEncoder) else ():
        for name, column in features.groups[group].columns.items():
            if not isinstance(column, Given):
                places, signs = features.groups[group].places[name]
                says = matrix[places].astype(np.float64) * signs[:, None]
                mean = column.mean @ says
                found[group, name] = (says.T * column.mean) @ says - np.outer(mean, mean)
    return found
