"""Encoders: what is known of people -> user vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from coldhash.arrays.checks import Forms, take
from coldhash.arrays.products import times, times_codes
from coldhash.data.ids import Ids
from coldhash.errors import ModelFileError
from coldhash.features.groups import FeatureEncoder, Features, State
from coldhash.features.preference import PREFERENCE
from coldhash.recommender.items import CodeItems, Items, code_items


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
    disliked
        What people have rated below what it gets on average (people x items), where that counts.
    """

    vectors: np.ndarray
    weights: dict[str, np.ndarray]
    fallback: np.ndarray
    ignored: list[tuple[int, str]] = field(default_factory=list)
    history: csr_array | None = None
    names: list[str] = field(default_factory=list)
    disliked: csr_array | None = None


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


USUAL = 1.0  # weight of an event of a new item: that of an average item
N_NEIGHBOURS = 10  # nearest items, whose mean score a dislike does not raise
LOWERED = 1.1  # times that what would raise them is taken out: they fall a little instead
_ARRAYS = ("weights", "means", "expected", "metric", "counts", "maps")


@dataclass(frozen=True, eq=False)
class HistoryPart:
    """How ratings or purchases just given move a user vector away from what the features say.

    An event of item i, with code d_i and weight w_i, is the row z_i of

        exposure     w_i d_i - e   that it was rated or bought, with e the usual event
        preference   w_i δ_i d_i   with δ_i the rating above the item's mean, in units of `spread`
        intercept    1

    and adds  v_i = z_i C_n / n  to the vector of a person with n events. C is learned for several
    n, and interpolated in log n between them.

    An item is disliked if it was rated below its mean. What is liked counts as if there were no
    dislikes: with n the number of such events. Having been rated, a disliked item may still say
    that people like its neighbours, but a dislike does not raise them: where v_i raises the mean
    score of the nearest items, that is with q = Σ g_j d_j over them  v_i·q > 0,  it becomes

        v_i - 1.1 (v_i·q) / (q M q')  q M

    about the nearest vector, by the scores of all items, that does not raise them: M = (D'V D)⁻¹.
    """

    codes: CodeItems
    weights: np.ndarray  # w
    means: np.ndarray  # mean ratings
    spread: float  # of ratings around the means; 0: events without a value, no preference
    expected: np.ndarray  # e
    metric: np.ndarray  # M
    counts: np.ndarray  # the n that C was learned for, ascending
    maps: np.ndarray  # C, counts x (exposure, preference, 1) x bits

    def with_maps(self, maps: Mapping[int, np.ndarray]) -> HistoryPart:
        """Return the part with a map for each number of events."""
        counts = sorted(maps)
        stacked = np.array([maps[n] for n in counts], np.float32).reshape(-1, *self.maps.shape[1:])
        return replace(self, counts=np.array(counts, np.int64), maps=stacked)

    def evidence(self, history: csr_array) -> np.ndarray:
        """Compute the mean of z over the events of each row."""
        n_events = np.diff(history.indptr)[:, None].astype(np.float32)
        items: Any = slice(None)
        columns = history.indices
        if len(columns) < len(self.codes):  # of a large catalogue, few events need few codes
            items, columns = np.unique(columns, return_inverse=True)
        words, weights, n_bits = (
            self.codes.index.packed(items),
            self.weights[items],
            len(self.expected),
        )

        def add_up(values: np.ndarray) -> np.ndarray:
            shape = (history.shape[0], len(words))
            events = csr_array((values, columns, history.indptr), shape=shape)
            return times_codes(events, words, weights, n_bits)

        exposure = add_up(np.ones(len(history.data), np.float32)) - n_events * self.expected
        sums = np.hstack([exposure, add_up(self._above(history)), n_events])
        return np.asarray(sums / np.maximum(n_events, 1))

    def deviation(self, history: csr_array) -> np.ndarray:
        """Compute how far people are from what their features say."""
        disliked = self._above(history) < 0
        liked = _select(history, ~disliked) if disliked.any() else history
        moved = self._move(self.evidence(liked), np.diff(liked.indptr))
        if disliked.any():
            np.add.at(moved, _owners(history)[disliked], self._split_dislikes(history, disliked))
        return moved

    def split(self, history: csr_array) -> np.ndarray:
        """Compute what each event of one person adds to the deviation: events x bits."""
        disliked = self._above(history) < 0
        moved = self._split(history, ~disliked, np.full(len(disliked), (~disliked).sum()))
        if disliked.any():
            moved[disliked] = self._split_dislikes(history, disliked)
        return moved

    def _split(self, history: csr_array, some: np.ndarray, n_events: np.ndarray) -> np.ndarray:
        """Compute z C_n / n of some events, with n by event; 0 for the others."""
        moved = np.zeros((len(some), len(self.expected)), np.float32)
        items, above, n = history.indices[some], self._above(history)[some], n_events[some]
        exposure = self.weights[items, None] * self.codes.rows(items).astype(np.float32)
        ones = np.ones((len(items), 1), np.float32)
        z = np.hstack([exposure - self.expected, above[:, None] * exposure, ones])
        moved[some] = self._move(z, n) / n[:, None].astype(np.float32)
        return moved

    def _split_dislikes(self, history: csr_array, disliked: np.ndarray) -> np.ndarray:
        """Compute what dislikes add: nothing that raises the items most like theirs."""
        n_events = np.diff(history.indptr)[_owners(history)]
        moved = self._split(history, disliked, n_events)[disliked]
        if len(self.codes) < 2:
            return np.zeros_like(moved)
        return np.asarray(moved - self._rises(history.indices[disliked], moved))

    def _rises(self, disliked: np.ndarray, moved: np.ndarray) -> np.ndarray:
        """Compute the part of disliked events that would raise the neighbours of their items."""
        items, places = np.unique(disliked, return_inverse=True)
        codes, itself = self.codes.rows(items).astype(np.float32), list(items[:, None])
        k = min(N_NEIGHBOURS, len(self.codes) - 1)
        near = self.codes.nearest(codes, k, self.codes.lists(itself))[0]
        neighbours = self.codes.rows(near.ravel()).reshape(*near.shape, -1)
        neighbours = neighbours * self.codes.gains(near)[:, :, None]
        q = neighbours.sum(axis=1, dtype=np.float64).astype(np.float32)
        pulls = times(q, self.metric)
        lengths = np.maximum((q * pulls).sum(axis=1, dtype=np.float64), 1e-30)
        raised = (moved * q[places]).sum(axis=1, dtype=np.float64) / lengths[places]
        return np.asarray(
            LOWERED * np.maximum(raised, 0)[:, None].astype(np.float32) * pulls[places]
        )

    def disliked(self, history: csr_array) -> csr_array | None:
        """Return the entries that are ratings below what their items get on average, if any."""
        below = self._above(history) < 0
        if not below.any():
            return None
        found = _select(history, below)
        ones = np.ones(len(found.indices), np.float32)  # a rating may be 0
        return csr_array((ones, found.indices, found.indptr), shape=history.shape)

    def _above(self, history: csr_array) -> np.ndarray:
        """Compute ratings above the items' means; 0 for events without a value."""
        if not self.spread:
            return np.zeros(len(history.data), dtype=np.float32)
        above = (history.data - self.means[history.indices]) / np.float32(self.spread)
        return np.where(np.isnan(above), np.float32(0), above)

    def _move(self, evidence: np.ndarray, n_events: np.ndarray) -> np.ndarray:
        moved = np.zeros((len(evidence), self.maps.shape[2]), dtype=np.float32)
        if len(self.counts):
            place = np.interp(
                np.log(np.maximum(n_events, 1)), np.log(self.counts), np.arange(len(self.counts))
            )
            for at, matrix in enumerate(self.maps):
                share = np.maximum(1 - np.abs(place - at), 0) * (n_events > 0)
                if share.any():
                    moved += share[:, None].astype(np.float32) * times(evidence, matrix)
        return moved

    def follow_items(
        self, items: Items, features: FeatureEncoder, rows: np.ndarray, n_new: int
    ) -> HistoryPart:
        """Return the part for other items: `rows` of those it had, then `n_new` more."""
        del features
        new = np.full(n_new, USUAL, dtype=self.weights.dtype)
        means = np.full(n_new, self.means.mean(), dtype=self.means.dtype)
        return replace(
            self,
            codes=_as_codes(items),
            weights=np.concatenate([self.weights[rows], new]),
            means=np.concatenate([self.means[rows], means]),
        )

    def state(self) -> State:
        """Return what only this part knows: the codes are the model's."""
        return {"spread": self.spread}, {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def restore(cls, state: State, codes: Items, features: FeatureEncoder) -> HistoryPart:
        """Rebuild the part."""
        del features
        json, arrays = state
        width = codes.width
        forms: Forms = {
            "weights": ("f", len(codes)),
            "means": ("f", len(codes)),
            "expected": ("f", width),
            "metric": ("f", width, width),
            "counts": ("i", "counts"),
            "maps": ("f", "counts", 2 * width + 1, width),
        }
        own = take(arrays, forms)
        counts = own["counts"]
        if len(counts) and not (counts[0] >= 1 and (np.diff(counts) > 0).all()):
            raise ModelFileError("'counts' are not ascending from 1")
        return cls(codes=_as_codes(codes), spread=float(json["spread"]), **own)


def _as_codes(items: Items) -> CodeItems:
    codes = code_items(items)
    if codes is None:
        raise ModelFileError("a history needs items with codes")
    return codes


def _select(history: csr_array, some: np.ndarray) -> csr_array:
    """Return some of the entries."""
    indptr = np.concatenate([[0], np.cumsum(some)])[history.indptr]
    return csr_array((history.data[some], history.indices[some], indptr), shape=history.shape)


def _owners(history: csr_array) -> np.ndarray:
    """Return the row of each entry."""
    return np.repeat(np.arange(history.shape[0]), np.diff(history.indptr))


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
        return self._move(history, *self._agree(features))

    def explain(
        self, features: Features, history: csr_array | None, item_ids: Ids
    ) -> tuple[Encoded, dict[str, np.ndarray]]:
        """Encode one person; return also what each group and each rated item adds."""
        said, shares, alone = self._agree(features)
        encoded = self._move(history, said, shares, alone)
        parts = {name: shares[0, at] * say[0] for at, (name, say) in enumerate(said.items())}
        parts = {name: part for at, (name, part) in enumerate(parts.items()) if shares[0, at] > 0}
        if not parts:
            parts["the average user"] = self.average
        if history is not None and self.history is not None:
            moved = self.history.split(history)
            parts |= {f"rated {item_ids[row]}": moved[n] for n, row in enumerate(history.indices)}
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
        history: csr_array | None,
        said: dict[str, np.ndarray],
        shares: np.ndarray,
        vectors: np.ndarray,
    ) -> Encoded:
        """Move vectors by what histories say."""
        fallback: np.ndarray = shares.sum(axis=1) <= 0
        disliked = None
        if history is not None and self.history is not None:
            vectors = vectors + self.history.deviation(history)
            fallback = fallback & (np.diff(history.indptr) == 0)
            disliked = self.history.disliked(history)
        weights = {name: shares[:, at] for at, name in enumerate(said)}
        return Encoded(vectors, weights, fallback, disliked=disliked)

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
