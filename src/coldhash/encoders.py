"""Encoders: what is known of people -> user vectors.

An encoder is fitted by a model and stored with it. All have one method, `encode`, and give each
person a vector, the weights of the groups that made it, and whether nothing at all was known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array

from coldhash.features.groups import Features, State
from coldhash.targets import RatingTarget

SELF_WEIGHTINGS = 3  # alternations of weights and consensus; more change nothing


@dataclass(frozen=True, eq=False)
class Encoded:
    """User vectors, the share of each group in them, and who had nothing to go by."""

    vectors: np.ndarray
    weights: dict[str, np.ndarray]
    fallback: np.ndarray
    ignored: list[tuple[int, str]] = field(default_factory=list)  # rated items nobody knows


class Encoder(Protocol):
    """From features and histories (people x items, or None) to vectors."""

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Encode people."""
        ...

    def state(self) -> State:
        """Give everything needed to rebuild the encoder, as JSON and arrays."""
        ...


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

    codes: np.ndarray  # items x bits
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
        items, columns = np.unique(history.indices, return_inverse=True)
        shown = np.sqrt(self.target(history.data)) * self.item_weights[history.indices]
        signals = csr_array((shown, columns, history.indptr), shape=(history.shape[0], len(items)))
        counts = np.diff(history.indptr).astype(np.float32)[:, None]
        z = np.asarray(signals @ evidence(self.codes, self.content, items)) - counts * expected
        shrunk = (z @ self.left) / (1 + np.maximum(counts - 1, 0) * self.shared)
        return shrunk @ self.right  # type: ignore[no-any-return]


def evidence(codes: np.ndarray, content: np.ndarray | None, items: Any) -> np.ndarray:
    """Give what ratings of some items show: their codes and, if there is any, their content."""
    parts = [codes[items]] if content is None else [codes[items], content[items]]
    return np.hstack(parts, dtype=np.float32, casting="unsafe")


@dataclass(frozen=True, eq=False)
class ConsensusEncoder:
    """The weighted mean of what each group says, moved by a history if there is one.

    Group weights are a person's own: they start from the training weights of the groups the person
    has, and groups that disagree with the consensus lose weight (28). Nobody else enters.
    """

    maps: dict[str, np.ndarray]
    weights: dict[str, float]
    average: np.ndarray  # the vector of somebody of whom nothing is known but a history
    history: HistoryPart | None = None

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Encode people."""
        names = [name for name in self.maps if name in features.has]
        says = [features.matrices[name] @ self.maps[name] for name in names]
        shares = self._shares(features, names, says)
        known = shares.sum(axis=1) > 0
        vectors = np.zeros((len(known), len(self.average)), dtype=np.float32)
        for at, say in enumerate(says):
            vectors += shares[:, at : at + 1] * say
        vectors[~known] = self.average
        fallback: np.ndarray = ~known
        if history is not None and self.history is not None:
            part = self.history
            expected = np.zeros((len(known), len(part.average)), dtype=np.float32)
            for at, name in enumerate(names):
                expected += shares[:, at : at + 1] * (features.matrices[name] @ part.expected[name])
            expected[~known] = part.average
            vectors = vectors + part.deviation(history, expected).astype(np.float32)
            fallback = fallback & (np.diff(history.indptr) == 0)
        weights = {name: shares[:, at] for at, name in enumerate(names)}
        return Encoded(vectors, weights, fallback)

    def _shares(self, features: Features, names: list[str], says: list[np.ndarray]) -> np.ndarray:
        """Weigh each person's groups; rows add up to 1, or to 0 where a person has none."""
        has = np.column_stack([features.has[name] for name in names]) if names else None
        if has is None:
            return np.zeros((len(features), 1), dtype=np.float32)
        shares = _normalised(has * np.array([self.weights[name] for name in names], np.float32))
        if len(names) < 2:
            return shares
        for _ in range(SELF_WEIGHTINGS):
            consensus = sum(shares[:, g : g + 1] * say for g, say in enumerate(says))
            apart = np.column_stack([np.linalg.norm(consensus - say, axis=1) for say in says])
            # one group alone, or two, agree with their mean in proportion: nothing to change
            several = has.sum(axis=1) > 2
            shares[several] = _normalised(has / np.maximum(apart, 1e-6))[several]
        return shares

    def state(self) -> State:
        """Give everything needed to rebuild the encoder."""
        arrays = {f"map/{name}": matrix for name, matrix in self.maps.items()}
        arrays["average"] = self.average
        json: dict[str, Any] = {"weights": self.weights, "history": None}
        if self.history is not None:
            part = self.history
            json["history"] = asdict(part.target)
            for name in ("item_weights", "average", "shared", "left", "right"):
                arrays[f"history/{name}"] = getattr(part, name)
            arrays |= {f"history/expected/{name}": array for name, array in part.expected.items()}
        return json, arrays


@dataclass(frozen=True, eq=False)
class StackEncoder:
    """The features of some groups side by side, sent through one map (None: as they are)."""

    groups: tuple[str, ...]
    matrix: np.ndarray | None = None

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Encode people; a history tells this encoder nothing."""
        del history
        has = np.column_stack([features.has[name] for name in self.groups])
        vectors = stacked(features, self.groups)
        if self.matrix is not None:
            vectors = vectors @ self.matrix
        shares = _normalised(has.astype(np.float32))
        weights = {name: shares[:, at] for at, name in enumerate(self.groups)}
        return Encoded(vectors.astype(np.float32), weights, np.asarray(~has.any(axis=1)))

    def state(self) -> State:
        """Give everything needed to rebuild the encoder."""
        arrays = {} if self.matrix is None else {"matrix": self.matrix}
        return {"groups": list(self.groups)}, arrays


@dataclass(frozen=True, eq=False)
class CellEncoder:
    """The cell of a table over some columns of one group, beside a constant.

    A missing column counts as its average, so that the person stands in several cells in part.
    """

    group: str
    blocks: tuple[tuple[int, int], ...]  # from and to column within the group

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Encode people; a history tells this encoder nothing."""
        del history
        matrix, has = features.matrices[self.group], features.has[self.group]
        cells = np.ones((len(has), 1), dtype=np.float32)
        for start, end in self.blocks:
            block = np.asarray(matrix[:, start:end])
            cells = (cells[:, :, None] * block[:, None, :]).reshape(len(has), -1)
        vectors = np.hstack([np.ones((len(has), 1), dtype=np.float32), cells])
        return Encoded(vectors, {self.group: has.astype(np.float32)}, ~has)

    def state(self) -> State:
        """Give everything needed to rebuild the encoder."""
        return {"group": self.group, "blocks": [list(block) for block in self.blocks]}, {}


@dataclass(frozen=True, eq=False)
class NoEncoder:
    """Everybody is the same."""

    def encode(self, features: Features, history: csr_array | None) -> Encoded:
        """Give everybody the same vector."""
        del history
        n_rows = len(features)
        return Encoded(np.ones((n_rows, 1), dtype=np.float32), {}, np.ones(n_rows, dtype=bool))

    def state(self) -> State:
        """There is nothing to rebuild."""
        return {}, {}


def stacked(features: Features, groups: tuple[str, ...]) -> np.ndarray:
    """Put the matrices of some groups side by side, dense."""
    parts = [features.matrices[name] for name in groups]
    return np.hstack([part if isinstance(part, np.ndarray) else part.toarray() for part in parts])


def _normalised(weights: np.ndarray) -> np.ndarray:
    totals = weights.sum(axis=1, keepdims=True)
    return np.asarray(weights / np.where(totals > 0, totals, 1), dtype=np.float32)


ENCODERS: Mapping[str, type] = {
    form.__name__: form for form in (ConsensusEncoder, StackEncoder, CellEncoder, NoEncoder)
}
