"""Recommender: what every method's fit returns. Encodes anybody, finds the best items, explains."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from coldhash.arrays.codes import pack, signs
from coldhash.data.ids import Ids, as_text
from coldhash.data.ratings import entries_of_rows
from coldhash.errors import SettingError
from coldhash.features.groups import FeatureEncoder
from coldhash.features.people import HISTORY, as_columns, read_histories
from coldhash.features.preference import PREFERENCE
from coldhash.recommender import model_file
from coldhash.recommender.encoders.consensus import ConsensusEncoder
from coldhash.recommender.encoders.encoded import Encoded, Encoder
from coldhash.recommender.item_map import ItemMap
from coldhash.recommender.items import (
    CodeItems,
    IndexedItems,
    Items,
    RealItems,
    item_arrays,
)
from coldhash.recommender.ranking import best_items, distances_of, item_lists
from coldhash.recommender.results import Recommendations
from coldhash.search import CodeIndex

Score = Literal["real", "hamming"]

USER_ID = "user_id"
LARGE = 1_000_000  # items from which one query is worth several threads
BLOCK = 4096  # people answered at a time


@dataclass(frozen=True, eq=False)
class Recommender:
    """A fitted model: an encoder for users, and a code or a vector for each item.

    `popularity` counts the favourites in the training part; it breaks ties and answers for people
    of whom nothing is known.

    Examples
    --------
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> model.name, model.bytes_per_item, len(model.item_ids), len(model.user_ids)
    ('mfdcf', 4, 100, 300)
    >>> model.recommend({}, k=3).fallback.tolist()  # nothing is known: the popular items
    [True]
    """

    name: str
    settings: dict[str, Any]
    features: FeatureEncoder
    encoder: Encoder
    item_ids: Ids
    items: Items
    popularity: np.ndarray
    scale: tuple[float, float]  # of ratings
    user_ids: Ids
    user_vectors: np.ndarray
    report: dict[str, Any] = field(default_factory=dict)
    seen: csr_array | None = None  # what the training users rated
    item_table: pa.Table | None = None  # what to show of items
    item_map: ItemMap | None = None  # what codes of new items follow from

    def __post_init__(self) -> None:
        if isinstance(self.items, CodeItems) or (
            isinstance(self.items, RealItems) and self.items.popularity is None
        ):
            object.__setattr__(self, "items", self.items.indexed(self.popularity))

    @property
    def has_codes(self) -> bool:
        """Whether items are codes: then Hamming distances exist."""
        return isinstance(self.items, IndexedItems)

    @property
    def bytes_per_item(self) -> float:
        """What an item costs in memory: a code, or a vector of real numbers."""
        assert not isinstance(self.items, CodeItems)  # laid out for search when it was made
        return self.items.bytes_per_item

    def encode(self, people: Any, ratings: csr_array | None = None) -> Encoded:
        """Turn people into vectors: a dict, a list of dicts, or a table.

        A dict may hold a `history` of item ids and ratings; `ratings` (people x items) stands for
        the histories of a whole table. What a person gets does not depend on who else is asked
        about.

        Examples
        --------
        >>> from coldhash import MFDCF, read
        >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
        >>> model.encode([{"age": 30, "history": {"7": 5}}, {"city": "Atlantis"}]).fallback.tolist()
        [False, True]
        """
        return self._encode(people, ratings)[0]

    def _encode(
        self, people: Any, ratings: csr_array | None = None
    ) -> tuple[Encoded, csr_array | None]:
        ignored: list[tuple[int, str]] = []
        columns, n_rows = as_columns(people)
        if ratings is None:
            found = read_histories(columns.get(HISTORY), n_rows, self.item_ids, self.scale)
            if found is not None:
                ratings, ignored = found.ratings, found.ignored
        wanted = ratings if self._wants_preference else None
        encoded = self.encoder.encode(self.features.encode(columns, n_rows, wanted), ratings)
        return (replace(encoded, ignored=ignored) if ignored else encoded), ratings

    @property
    def _wants_preference(self) -> bool:
        """A history is evidence of its own; only a model without other groups makes it one."""
        return isinstance(self.encoder, ConsensusEncoder) and PREFERENCE in self.encoder.maps

    def with_users(self, user_ids: Any, people: Any, ratings: csr_array | None) -> Recommender:
        """Give known users new vectors from what is known of them now; nothing is refitted."""
        vectors = self.user_vectors.copy()
        vectors[self.user_ids.rows(user_ids)] = self.encode(people, ratings).vectors
        return replace(self, user_vectors=vectors)

    def score(self, encoded: Encoded, score: Score = "real") -> np.ndarray:
        """Score the catalogue for encoded people; who had nothing to go by gets popularity."""
        vectors = encoded.vectors
        if self._by_code(score):
            vectors = signs(vectors, np.float32)
        assert not isinstance(self.items, CodeItems)
        scores = self.items.scores(vectors)
        scores[encoded.fallback] = self.popularity
        return scores

    def recommend(
        self,
        users: Any = None,
        k: int = 10,
        *,
        user_ids: Sequence[Any] | None = None,
        exclude: Any = None,
        candidates: Any = None,
        filter_seen: bool = True,
        score: Score = "real",
        threads: int | None = None,
        as_arrays: bool = False,
    ) -> Any:
        """Give the k best items for strangers (`users`) or for training users (`user_ids`).

        Parameters
        ----------
        users
            A dict, a list of dicts, or a table; every column may be missing. A `history` (item id
            -> rating) counts, and its items are left out of the answer.
        user_ids
            Users of the training data.
        exclude, candidates
            Items not to recommend, and the only ones to recommend: a list of item ids for
            everybody, or a list of such lists, one a user. Both may be given.
        filter_seen
            Leave out what a user has rated.
        score
            `real`: real-valued users against item codes. `hamming`: codes on both sides.
        threads
            How many to use; None: one for one user, all cores for many.
        as_arrays
            Give `(item_ids, scores)`, users x k, padded with None and -inf.

        Examples
        --------
        >>> from coldhash.data.sources import read
        >>> from coldhash.mfdcf.model import MFDCF
        >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
        >>> answer = model.recommend({"age": 30, "gender": "female"}, k=3)
        >>> [row["rank"] for row in answer]
        [1, 2, 3]
        """
        encoded, names, seen = self.who(users, user_ids, filter_seen)
        excluded = item_lists(self.items, self.item_ids, exclude, len(names), seen)
        listed = item_lists(self.items, self.item_ids, candidates, len(names), None)
        by_code = self._by_code(score)
        threads = self._threads(threads, len(names))
        rows, scores = best_items(
            self.items, self.popularity, encoded, k, excluded, listed, threads, by_code
        )
        if as_arrays:
            ids = [[self.item_ids[r] if r >= 0 else None for r in row] for row in rows.tolist()]
            return np.array(ids, dtype=object).reshape(rows.shape), scores
        counts = (rows >= 0).sum(axis=1)
        return Recommendations(
            user_ids=names,
            item_ids=self.item_ids.texts(rows),
            scores=scores,
            distances=distances_of(self.items, scores) if by_code else None,
            fallback=encoded.fallback,
            short=[name for name, count in zip(names, counts, strict=True) if count < k],
            ignored=encoded.ignored,
        )

    def recommend_all(
        self, k: int = 10, *, progress: Callable[[int, int], None] | None = None, **options: Any
    ) -> Any:
        """Give the k best items for every training user, block by block, as Arrow tables.

        Examples
        --------
        >>> from coldhash import MFDCF, read
        >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
        >>> [table.num_rows for table in model.recommend_all(k=3)]
        [900]
        """
        total = len(self.user_ids)
        for start in range(0, total, BLOCK):
            rows = np.arange(start, min(start + BLOCK, total))
            ids = self.user_ids.take(rows).values.to_pylist()
            yield self.recommend(user_ids=ids, k=k, **options).to_arrow()
            if progress is not None:
                progress(int(rows[-1]) + 1, total)

    def similar_items(self, item_id: Any, k: int = 10) -> Recommendations:
        """Give the items whose codes (or vectors) are nearest to an item's.

        Examples
        --------
        >>> from coldhash import MFDCF, read
        >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
        >>> near = model.similar_items("7", k=3)
        >>> len(near), "7" in near.item_ids[0]
        (3, False)
        """
        row = self.item_ids.rows([item_id])
        names = [as_text(item_id)]
        return self._near(names, self.item_ids, self.items, self._item_vectors(row), k, row)

    def similar_users(self, users: Any = None, k: int = 10, *, user_id: Any = None) -> Any:
        """Give the training users nearest to a stranger or to a training user.

        Examples
        --------
        >>> from coldhash import MFDCF, read
        >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
        >>> len(model.similar_users({"age": 30}, k=5))
        5
        """
        encoded, names, _ = self.who(users, None if user_id is None else [user_id], False)
        own = self.user_ids.find(names) if user_id is not None else np.array([-1])
        return self._near(names, self.user_ids, self._users_index, encoded.vectors, k, own)

    def explain(self, user: Mapping[str, Any], item_id: Any, k: int = 3) -> dict[str, Any]:
        """Say what carried an item for a person: parts that add up to the score.

        The parts are the feature groups and the items of the history; `nearest_users` are the k
        training users most like the person.

        Examples
        --------
        >>> from coldhash import MFDCF, read
        >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
        >>> why = model.explain({"age": 30, "history": {"7": 5}}, "12")
        >>> list(why["contributions"]), len(why["nearest_users"])
        (['demographics', 'rated 7'], 3)
        >>> abs(sum(why["contributions"].values()) - why["score"]) < 1e-6
        True
        """
        encoded, ratings = self._encode(user)
        item = self._item_vectors(self.item_ids.rows([item_id]))[0].astype(np.float64)
        features = self.features.apply(user, ratings)
        parts: dict[str, np.ndarray] = {"all that is known": encoded.vectors[0]}
        if isinstance(self.encoder, ConsensusEncoder) and not encoded.fallback[0]:
            parts = self.encoder.parts(features, ratings, self.item_ids)
        contributions = {name: math.fsum(vector * item) for name, vector in parts.items()}
        return {
            "item_id": as_text(item_id),
            "score": float(sum(contributions.values())),
            "contributions": contributions,
            "group_weights": {name: float(share[0]) for name, share in encoded.weights.items()},
            "nearest_users": self.similar_users(user, k).item_ids[0],
            "fallback": bool(encoded.fallback[0]),
            "ignored": [item for _, item in encoded.ignored],
        }

    def save(self, path: str | Path) -> None:
        """Write the model to one file, in one step."""
        encoder, encoder_arrays = self.encoder.state()
        features, feature_arrays = self.features.state()
        facts = {
            "name": self.name,
            "settings": self.settings,
            "scale": list(self.scale),
            "features": features,
            "encoder": {"form": type(self.encoder).__name__, "state": encoder},
            "n_bits": self.items.n_bits if isinstance(self.items, IndexedItems) else None,
            "item_map": None,
            # without timings: fits of one seed write the same bytes
            "report": {name: said for name, said in self.report.items() if name != "seconds"},
        }
        tensors = {"popularity": self.popularity, "users/vectors": self.user_vectors}
        tensors |= _prefixed("items/", item_arrays(self.items))
        tensors |= _prefixed("item_ids/", self.item_ids.arrays())
        tensors |= _prefixed("user_ids/", self.user_ids.arrays())
        tensors |= _prefixed("encoder/", encoder_arrays)
        tensors |= _prefixed("features/", feature_arrays)
        if self.seen is not None:
            tensors |= {"seen/indptr": self.seen.indptr, "seen/indices": self.seen.indices}
        if self.item_map is not None:
            facts["item_map"], item_map_arrays = self.item_map.state()
            tensors |= _prefixed("item_map/", item_map_arrays)
        if self.item_table is not None and self.item_table.num_columns and self.item_table.num_rows:
            tensors["item_table"] = model_file.arrow_bytes(self.item_table)
        model_file.write(Path(path), facts, tensors)

    @cached_property
    def _users_index(self) -> Items:
        if not self.has_codes:
            return RealItems(self.user_vectors, np.zeros(len(self.user_vectors)))
        codes = pack(signs(self.user_vectors))
        index = CodeIndex.of(codes, self.user_vectors.shape[1], np.zeros(len(codes)))
        return IndexedItems(index)

    def who(
        self, users: Any, user_ids: Sequence[Any] | None, filter_seen: bool
    ) -> tuple[Encoded, list[str], csr_array | None]:
        """Find out who asks: their vectors, what to call them, and what they have rated."""
        if (users is None) == (user_ids is None):
            raise SettingError("say for whom", hint="users (strangers) or user_ids, one of them")
        if user_ids is None:
            encoded, ratings = self._encode(users)
            return encoded, _names(users, len(encoded.vectors)), ratings if filter_seen else None
        rows = self.user_ids.rows(user_ids)
        seen = None
        if filter_seen and self.seen is not None:
            # cut by hand: indexing would spread the one stored 1 out over all ratings
            indptr = np.concatenate([[0], np.cumsum(np.diff(self.seen.indptr)[rows])])
            items = self.seen.indices[entries_of_rows(self.seen.indptr, rows)]
            ones = np.ones(len(items), dtype=np.float32)
            seen = csr_array((ones, items, indptr), shape=(len(rows), self.seen.shape[1]))
        known = Encoded(self.user_vectors[rows], {}, np.zeros(len(rows), dtype=bool))
        return known, [self.user_ids[row] for row in rows], seen

    def _by_code(self, score: Score) -> bool:
        if score not in get_args(Score):
            raise SettingError(f"score={score!r}", hint=f"one of {', '.join(get_args(Score))}")
        if score == "hamming" and not self.has_codes:
            raise SettingError(
                f"{self.name} has real-valued items, so no Hamming distance", hint="score='real'"
            )
        return score == "hamming"

    def _threads(self, threads: int | None, n_users: int) -> int:
        if threads is not None:
            if threads < 1:
                raise SettingError(f"threads={threads}", hint="at least 1")
            return threads
        return 1 if n_users == 1 and len(self.items) < LARGE else os.cpu_count() or 1

    def _item_vectors(self, rows: np.ndarray) -> np.ndarray:
        if isinstance(self.items, RealItems):
            part = self.items.vectors[rows]
            return np.asarray(part if isinstance(part, np.ndarray) else part.toarray())
        return self.items.rows(rows).astype(np.float32)

    def _near(
        self,
        names: list[str],
        ids: Ids,
        items: Items,
        vectors: np.ndarray,
        k: int,
        own: np.ndarray,
    ) -> Recommendations:
        """Find the nearest of some items (or users), each one's own row left out."""
        assert not isinstance(items, CodeItems)
        excluded = items.lists([own[own >= 0]] * len(names))
        rows, scores = items.best(vectors, k, excluded, None, 1, by_code=self.has_codes)
        return Recommendations(
            user_ids=names,
            item_ids=ids.texts(rows),
            scores=scores,
            distances=distances_of(items, scores) if self.has_codes else None,
            fallback=np.zeros(len(names), dtype=bool),
            short=[],
        )


def _names(users: Any, n_users: int) -> list[str]:
    """Call strangers by their user_id, if they have one, or else by their place."""
    columns, _ = as_columns(users)
    given = columns.get(USER_ID)
    if given is None:
        return [str(place) for place in range(n_users)]
    values = given.to_pylist() if isinstance(given, pa.ChunkedArray) else given
    return [str(place) if name is None else str(name) for place, name in enumerate(values)]


def _prefixed(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {prefix + name: array for name, array in arrays.items()}
