"""The encoder of MFDCF: what the groups agree on, moved by a history."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.checks import Forms, take
from coldhash.arrays.products import times
from coldhash.data.ids import Ids
from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.features.preference import PREFERENCE
from coldhash.recommender.encoders.base import Encoded, Encoder, scale_rows
from coldhash.recommender.encoders.history import HistoryPart
from coldhash.recommender.items import Items

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
