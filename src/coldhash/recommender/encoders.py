"""Encoders: what is known of people -> user vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.checks import Forms, take
from coldhash.arrays.products import times
from coldhash.data.ids import Ids
from coldhash.data.ratings import RatingTarget
from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.features.preference import PREFERENCE
from coldhash.recommender.items import Items


@dataclass(frozen=True, eq=False)
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
    """

    vectors: np.ndarray
    weights: dict[str, np.ndarray]
    fallback: np.ndarray
    ignored: list[tuple[int, str]] = field(default_factory=list)
    history: csr_array | None = None
    names: list[str] = field(default_factory=list)


class Encoder(ABC):
    """From features and histories (people x items, or None) to vectors."""

    @property
    def uses_preference(self) -> bool:
        """Whether a history counts as the preference group, too."""
        return False

    @abstractmethod
    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Compute the vectors of people."""

    def explain(
        self, features: Features, history: csr_array | None, item_ids: Ids
    ) -> tuple[Encoded, dict[str, np.ndarray]]:
        """Encode one person; return also named vectors that add up to the person's."""
        del item_ids
        encoded = self.encode(features, history)
        return encoded, {"all that is known": encoded.vectors[0]}

    def follow_items(
        self, items: Items, features: FeatureEncoder, rows: np.ndarray, n_new: int
    ) -> Self:
        """Return the encoder for other items: `rows` of those it had, then `n_new` more."""
        del items, features, rows, n_new
        return self

    @abstractmethod
    def state(self) -> State:
        """Return what only the encoder knows, as JSON and arrays."""

    @classmethod
    @abstractmethod
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> Self:
        """Rebuild the encoder from its state and from what the model has anyway."""


def group_shares(features: Features, groups: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return equal shares of the groups that each person has."""
    has = np.column_stack([features.has[name] for name in groups])
    shares = scale_rows(has.astype(np.float32))
    return {name: shares[:, at] for at, name in enumerate(groups)}


def has_nothing(features: Features, groups: tuple[str, ...]) -> np.ndarray:
    """Return who has none of the groups."""
    return np.asarray(~np.logical_or.reduce([features.has[name] for name in groups]))


def scale_rows(weights: np.ndarray) -> np.ndarray:
    """Scale rows of weights so that they add up to 1; a row of zeros stays."""
    totals = weights.sum(axis=1, keepdims=True)
    return np.asarray(weights / np.where(totals > 0, totals, 1), dtype=np.float32)


USUAL = 1.0  # weight of a rating of a new item: that of an average item
_ARRAYS = ("item_weights", "average", "shared", "left", "right")


@dataclass(frozen=True, eq=False)
class HistoryPart:
    """How ratings just given move a user vector away from what the features say.

    One given rating of item i shows  ξ = v_i √t [d_i, c_i],  with t the rating's target, d_i the
    item's code, c_i the main part of its content, if any, and v_i a weight that discounts popular
    items. The best linear estimate of a user's deviation from what the features say, given the sum
    z of n of these, is

        (z - n E[ξ|x]) (S₁ + (n-1) S₂)⁻¹ C

    with S₁ the covariance of one ξ, S₂ the covariance of two ξ of the same user (what they share)
    and C the covariance of ξ and the deviation, all taken from the training users' own ratings. S₁
    and S₂ are made diagonal together once, so any n costs two small products.
    """

    codes: Items
    content: np.ndarray | None  # items x a few
    item_weights: np.ndarray  # v
    expected: dict[str, np.ndarray]  # maps from features to E[ξ|x], by group
    average: np.ndarray  # E[ξ] of somebody unknown
    shared: np.ndarray  # λ: how much of each direction two ratings share
    left: np.ndarray
    right: np.ndarray
    target: RatingTarget

    def deviation(self, history: csr_array, expected: np.ndarray) -> np.ndarray:
        """Estimate how far people are from what their features say."""
        counts = np.diff(history.indptr).astype(np.float32)[:, None]
        return self._estimate(self._shown(history) - counts * expected, counts)

    def surprise(self, history: csr_array, n_given: int) -> np.ndarray:
        """Return what each row's ratings, of `n_given` in all, add before what was expected."""
        counts = np.full((history.shape[0], 1), n_given, dtype=np.float32)
        return self._estimate(self._shown(history), counts)

    def _shown(self, history: csr_array) -> np.ndarray:
        """Sum up what the ratings of each person show: z."""
        items, columns = np.unique(history.indices, return_inverse=True)
        shown = np.sqrt(self.target(history.data)) * self.item_weights[history.indices]
        signals = csr_array((shown, columns, history.indptr), shape=(history.shape[0], len(items)))
        return times(signals, evidence(self.codes, self.content, items))

    def _estimate(self, surprise: np.ndarray, counts: np.ndarray) -> np.ndarray:
        shrunk = times(surprise, self.left) / (1 + np.maximum(counts - 1, 0) * self.shared)
        return times(shrunk, self.right)

    def follow_items(
        self, items: Items, features: FeatureEncoder, rows: np.ndarray, n_new: int
    ) -> HistoryPart:
        """Return the part for other items: `rows` of those it had, then `n_new` more."""
        new = np.full(n_new, USUAL, dtype=self.item_weights.dtype)
        return replace(
            self,
            codes=items,
            content=None if features.preference is None else features.preference.main,
            item_weights=np.concatenate([self.item_weights[rows], new]),
        )

    def state(self) -> State:
        """Return what only this part knows: codes and content are the model's."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {f"expected/{name}": array for name, array in self.expected.items()}
        return {"target": asdict(self.target)}, arrays

    @classmethod
    def restore(cls, state: State, codes: Items, features: FeatureEncoder) -> HistoryPart:
        """Rebuild the part."""
        json, arrays = state
        content = None if features.preference is None else features.preference.main
        shown = codes.width + (0 if content is None else content.shape[1])
        forms: Forms = {
            "item_weights": ("f", len(codes)),
            "average": ("f", shown),
            "shared": ("f", "rank"),
            "left": ("f", shown, "rank"),
            "right": ("f", "rank", codes.width),
        }
        own = take(arrays, forms)
        widths = features.widths
        forms = {f"expected/{name}": ("f", width, shown) for name, width in widths.items()}
        maps = dict(zip(widths, take(arrays, forms).values(), strict=True))
        target = RatingTarget(**json["target"])
        return cls(codes=codes, content=content, expected=maps, target=target, **own)


def evidence(codes: Items, content: np.ndarray | None, items: Any) -> np.ndarray:
    """Return what ratings of some items show: their codes and, if there is any, their content."""
    shown = codes.rows(items).astype(np.float32)
    return shown if content is None else np.hstack([shown, content[items]])


SELF_WEIGHTINGS = 3  # alternations of weights and consensus; more change nothing


@dataclass(frozen=True, eq=False)
class ConsensusEncoder(Encoder):
    """The weighted mean of what each group says, moved by a history if there is one.

    Group weights are a person's own: they start from the training weights of the groups the person
    has, and groups that disagree with the consensus lose weight (28). Nobody else enters.
    """

    maps: dict[str, np.ndarray]
    weights: dict[str, float]
    average: np.ndarray  # the vector of somebody of whom nothing is known but a history
    history: HistoryPart | None = None

    @property
    def uses_preference(self) -> bool:
        """Whether a history counts as the preference group: only if there is no other one."""
        return PREFERENCE in self.maps

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Compute the vectors of people."""
        return self._move(features, history, *self._agree(features))

    def explain(
        self, features: Features, history: csr_array | None, item_ids: Ids
    ) -> tuple[Encoded, dict[str, np.ndarray]]:
        """Encode one person; return also what each group and each rated item adds."""
        said, shares, alone = self._agree(features)
        encoded = self._move(features, history, said, shares, alone)
        parts = {name: shares[0, at] * say[0] for at, (name, say) in enumerate(said.items())}
        parts = {name: part for at, (name, part) in enumerate(parts.items()) if shares[0, at] > 0}
        if not parts:
            parts["the average user"] = self.average
        if history is not None and self.history is not None:
            whole = encoded.vectors[0] - alone[0]
            parts |= self._rated_parts(self.history, history, item_ids, whole)
        return encoded, parts

    def follow_items(
        self, items: Items, features: FeatureEncoder, rows: np.ndarray, n_new: int
    ) -> ConsensusEncoder:
        """Return the encoder for other items: `rows` of those it had, then `n_new` more."""
        if self.history is None:
            return self
        return replace(self, history=self.history.follow_items(items, features, rows, n_new))

    def _agree(self, features: Features) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Return what each group says, its share for each person, and the weighted mean."""
        names = [name for name in self.maps if name in features.has]
        said = {name: times(features.matrices[name], self.maps[name]) for name in names}
        shares = self._shares(features, names, list(said.values()))
        vectors = np.zeros((len(features), len(self.average)), dtype=np.float32)
        for at, say in enumerate(said.values()):
            vectors += shares[:, at : at + 1] * say
        vectors[shares.sum(axis=1) <= 0] = self.average
        return said, shares, vectors

    def _move(
        self,
        features: Features,
        history: csr_array | None,
        said: dict[str, np.ndarray],
        shares: np.ndarray,
        vectors: np.ndarray,
    ) -> Encoded:
        """Move vectors by what histories say beyond what the features lead to expect."""
        known = shares.sum(axis=1) > 0
        fallback: np.ndarray = ~known
        if history is not None and self.history is not None:
            part = self.history
            expected = np.zeros((len(known), len(part.average)), dtype=np.float32)
            for at, name in enumerate(said):
                says_of_history = times(features.matrices[name], part.expected[name])
                expected += shares[:, at : at + 1] * says_of_history
            expected[~known] = part.average
            vectors = vectors + part.deviation(history, expected)
            fallback = fallback & (np.diff(history.indptr) == 0)
        return Encoded(vectors, {name: shares[:, at] for at, name in enumerate(said)}, fallback)

    @staticmethod
    def _rated_parts(
        part: HistoryPart, history: csr_array, item_ids: Ids, whole: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Split what a history adds over its items: each rating's surprise, by the same map."""
        n_given = len(history.indices)
        alone = csr_array(
            (history.data, history.indices, np.arange(n_given + 1)),
            shape=(n_given, history.shape[1]),
        )
        shown = part.surprise(alone, n_given)
        # E[ξ|x] is the same for every rating: what is missing to the whole, in equal shares
        rest = (whole - shown.sum(axis=0)) / max(n_given, 1)
        return {
            f"rated {item_ids[item]}": shown[at] + rest for at, item in enumerate(history.indices)
        }

    def _shares(self, features: Features, names: list[str], says: list[np.ndarray]) -> np.ndarray:
        """Weigh each person's groups; rows add up to 1, or to 0 where a person has none."""
        has = np.column_stack([features.has[name] for name in names]) if names else None
        if has is None:
            return np.zeros((len(features), 1), dtype=np.float32)
        shares = scale_rows(has * np.array([self.weights[name] for name in names], np.float32))
        if len(names) < 2:
            return shares
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
        json: dict[str, Any] = {"weights": self.weights, "history": None}
        if self.history is not None:
            json["history"], more = self.history.state()
            arrays |= {f"history/{name}": array for name, array in more.items()}
        return json, arrays

    @classmethod
    def restore(cls, state: State, items: Items, features: FeatureEncoder) -> ConsensusEncoder:
        """Rebuild the encoder."""
        json, arrays = state
        # a history is evidence of its own; the preference has a map where there is nothing else
        groups = list(features.groups) or list(features.widths)
        forms: Forms = {f"map/{name}": ("f", features.widths[name], items.width) for name in groups}
        own = take(arrays, forms | {"average": ("f", items.width)})
        average = own.pop("average")
        history = None
        if json["history"] is not None:
            more = {n.split("/", 1)[1]: a for n, a in arrays.items() if n.startswith("history/")}
            history = HistoryPart.restore((json["history"], more), items, features)
        maps = dict(zip(groups, own.values(), strict=True))
        return cls(maps, json["weights"], average, history)
