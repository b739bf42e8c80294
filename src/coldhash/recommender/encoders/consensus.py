"""The encoder of MFDCF: what the groups agree on, moved by a history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.checks import Forms, take
from coldhash.arrays.products import times
from coldhash.data.ids import Ids
from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.recommender.encoders.encoded import Encoded, shares_of
from coldhash.recommender.encoders.history import HistoryPart
from coldhash.recommender.items import IndexedItems, Items

SELF_WEIGHTINGS = 3  # alternations of weights and consensus; more change nothing


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
        says = [times(features.matrices[name], self.maps[name]) for name in names]
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
                says_of_history = times(features.matrices[name], part.expected[name])
                expected += shares[:, at : at + 1] * says_of_history
            expected[~known] = part.average
            vectors = vectors + part.deviation(history, expected)
            fallback = fallback & (np.diff(history.indptr) == 0)
        weights = {name: shares[:, at] for at, name in enumerate(names)}
        return Encoded(vectors, weights, fallback)

    def parts(
        self, features: Features, history: csr_array | None, item_ids: Ids
    ) -> dict[str, np.ndarray]:
        """Take one person's vector apart: what each group and each rated item adds to it."""
        parts: dict[str, np.ndarray] = {}
        encoded = self.encode(features, None)
        if encoded.fallback[0]:
            parts["the average user"] = self.average
        for name, share in encoded.weights.items():
            if share[0] > 0:
                parts[name] = (share[:, None] * times(features.matrices[name], self.maps[name]))[0]
        if history is not None and self.history is not None:
            whole = self.encode(features, history).vectors[0] - encoded.vectors[0]
            parts |= self._rated_parts(history, item_ids, whole)
        return parts

    def _rated_parts(
        self, history: csr_array, item_ids: Ids, whole: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Split what a history adds over its items: each rating's surprise, by the same map."""
        assert self.history is not None
        n_given = len(history.indices)
        alone = csr_array(
            (history.data, history.indices, np.arange(n_given + 1)),
            shape=(n_given, history.shape[1]),
        )
        shown = self.history.surprise(alone, n_given)
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
        shares = shares_of(has * np.array([self.weights[name] for name in names], np.float32))
        if len(names) < 2:
            return shares
        for _ in range(SELF_WEIGHTINGS):
            consensus = sum(shares[:, g : g + 1] * say for g, say in enumerate(says))
            apart = np.column_stack([np.linalg.norm(consensus - say, axis=1) for say in says])
            # one group alone, or two, agree with their mean in proportion: nothing to change
            several = has.sum(axis=1) > 2
            shares[several] = shares_of(has / np.maximum(apart, 1e-6))[several]
        return shares

    def state(self) -> State:
        """Give what only the encoder knows."""
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
        if json["history"] is not None and isinstance(items, IndexedItems):
            more = {n.split("/", 1)[1]: a for n, a in arrays.items() if n.startswith("history/")}
            history = HistoryPart.restore((json["history"], more), items, features)
        maps = dict(zip(groups, own.values(), strict=True))
        return cls(maps, json["weights"], average, history)
