"""Recommender: what every method's fit returns. Encodes anybody, finds the best items, explains."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from coldhash.arrays.checks import check_computed
from coldhash.arrays.codes import signs
from coldhash.arrays.products import SparseRows, union
from coldhash.arrays.threads import one_blas_thread
from coldhash.data import ROLES, TITLE
from coldhash.data.feedback import MAX_RATING, Feedback
from coldhash.data.ids import Ids, IdValue, as_text
from coldhash.errors import DataError, SettingError, blame, check_choice, check_positive
from coldhash.features.columns import Value
from coldhash.features.groups import FeatureEncoder
from coldhash.features.people import (
    ANSWERS,
    HISTORY,
    Histories,
    People,
    Person,
    as_columns,
    check_fields,
    read_histories,
)
from coldhash.files import Json
from coldhash.recommender import results
from coldhash.recommender.encoders import (
    ITEMS_AND_FIELDS,
    Encoded,
    Encoder,
    PeopleData,
    Question,
    QuestionKind,
    compute_field_covariances,
    find_questions,
)
from coldhash.recommender.items import CodeItems, Items, RealItems, code_items, move_to_the_end
from coldhash.recommender.where import ItemFilter, Where, find_column
from coldhash.render import html_table
from coldhash.search import Search

if TYPE_CHECKING:
    from scipy.sparse import csr_array

ItemLists: TypeAlias = Iterable[IdValue] | Iterable[Iterable[IdValue]]
Score = Literal["real", "hamming"]
Unknown = Literal["error", "ignore"]

SCORES, UNKNOWN = get_args(Score), get_args(Unknown)

USER_ID = "user_id"
OWN_COLUMNS = ("user_id", "item_id", "score", "rank", "distance", "fallback")  # of answers
N_NEAREST = 3  # training users that an explanation names
MANY_ITEMS = 1_000_000  # from which one query is worth several threads


@dataclass(frozen=True, eq=False)
class Recommender:
    """A fitted model: an encoder for users, and a code or a vector for each item.

    Parameters
    ----------
    name, settings
        The method, and the settings that it was fitted with.
    features, encoder
        From what is known of people to features, and from features to vectors.
    item_ids, items
        The catalogue: ids, and the code or vector of each item.
    popularity
        The number of favourites of each item in the training part; it breaks ties and answers for
        people of whom nothing is known.
    scale
        The lowest and the highest rating there may be.
    feedback
        What ratings are, and which of them make an item a favourite.
    user_ids, user_vectors
        The training users.
    seen
        What the training users rated (users x items).
    report
        What the fit reports of itself.
    item_table
        What to show of items.
    columns
        Which columns of the training tables were `user_id`, `item_id` and `title`, by these roles.
    guessed
        Which items were added after the fit: their levels and codes are estimates. None: no item.

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
    settings: dict[str, Json]
    features: FeatureEncoder
    encoder: Encoder
    item_ids: Ids
    items: Items
    popularity: np.ndarray
    scale: tuple[float, float]
    user_ids: Ids
    user_vectors: np.ndarray
    seen: csr_array | SparseRows
    report: dict[str, Json] = field(default_factory=dict)
    item_table: pa.Table = field(default_factory=lambda: pa.table({}))
    guessed: np.ndarray | None = None
    feedback: Feedback = field(default_factory=Feedback)
    columns: dict[str, str] = field(default_factory=dict)

    def _summary(self) -> dict[str, str]:
        n_bits = self.settings.get("n_bits", self.items.n_bits)  # with those of the level
        width = f"{n_bits} bits" if self.has_codes else "real-valued"
        size = self.bytes_per_item * len(self.items)
        return {
            "method": f"{self.name}, {width}",
            "items": f"{len(self.items):,}",
            "users": f"{len(self.user_ids):,}",
            "person": ", ".join(self.person_fields),
            "size": f"{self.bytes_per_item:g} bytes an item, {size:,.0f} in all",
        }

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {text}" for name, text in self._summary().items())

    def _repr_html_(self) -> str:
        return html_table(self._summary().items())

    @property
    def has_codes(self) -> bool:
        """Whether items are codes: then Hamming distances exist."""
        return self.items.n_bits is not None

    @property
    def guesses(self) -> np.ndarray:
        """For each item, whether its level and code are estimates."""
        return np.zeros(len(self.item_ids), bool) if self.guessed is None else self.guessed

    @property
    def history_scale(self) -> tuple[float, float]:
        """The lowest and the highest value in a history: counts have no highest one."""
        return self.scale if self.feedback.kind == "ratings" else (0.0, MAX_RATING)

    @property
    def bytes_per_item(self) -> float:
        """What an item costs in memory: a code, or a vector of real numbers."""
        return self.items.bytes_per_item

    @cached_property
    def person_fields(self) -> tuple[str, ...]:
        """The fields of a person that the model knows, beside the id."""
        groups = self.features.groups.values()
        given = (HISTORY,) if self.encoder.answers is None else (HISTORY, ANSWERS)
        return (*(name for group in groups for name in group.columns), *given)

    def id_column(self, names: Collection[str]) -> str | None:
        """Return which column of people holds their ids.

        Parameters
        ----------
        names
            The columns.

        Returns
        -------
        str or None
            The one that held the ids of users in training, or one with a usual name.
        """
        usual = (self.columns.get(USER_ID, USER_ID), *ROLES[USER_ID])
        found = (name for name in usual if name in names and name not in self.person_fields)
        return next(found, None)

    @cached_property
    def titles(self) -> pa.Array | None:
        """What items are called, by row; None if no column of the item table is a title."""
        return results.find_titles(self.item_table, self.columns.get(TITLE))

    @cached_property
    def _shown(self) -> results.ShownItems:
        return results.ShownItems(self.item_ids, self.titles, {})

    def show(self, fields: Sequence[str] | None) -> results.ShownItems:
        """Return what answers show of items: ids, titles and the chosen columns.

        Parameters
        ----------
        fields
            Columns of the item table.

        Returns
        -------
        ShownItems
            The columns, and what describes a single item.

        Raises
        ------
        SettingError
            The item table has no such column.
        """
        if not fields:
            return self._shown
        columns = {}
        with blame("fields"):
            for name in fields:
                shown = f"item_{name}" if name in OWN_COLUMNS else name
                columns[shown] = find_column(self.item_table, name)
        return results.ShownItems(self.item_ids, self.titles, columns)

    def encode(
        self,
        people: People | Encoded | None = None,
        ratings: csr_array | None = None,
        *,
        user_ids: Sequence[IdValue] | None = None,
        unknown: Unknown = "error",
    ) -> Encoded:
        """Compute the vectors of people, or look up those of training users.

        Parameters
        ----------
        people
            A dict, a list of dicts, or a table. A dict may hold a `history`: a dict of item ids
            and ratings, or a list of item ids; and `answers` to questions of `ask`: a dict of item
            ids and ratings, or None where the person does not know the item. What a person gets
            does not depend on who else is asked about.
        ratings
            The histories of a whole table (people x items).
        user_ids
            Users of the training data. With people, of the same number, these describe whom the
            model does not know.
        unknown
            Fields of people that the model does not know, which are usually typing errors:
            "error" raises one for dicts and warns of columns of a table, "ignore" does neither.

        Returns
        -------
        Encoded
            Vectors, the weights of groups, and who had nothing usable.

        Raises
        ------
        DataError
            A value or a rating cannot be right, or the model does not know a field.
        UnknownId
            A user is not in the model.

        Examples
        --------
        >>> from coldhash import MFDCF, read
        >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
        >>> model.encode([{"age": 30, "history": {"7": 5}}, {"city": "Atlantis"}]).fallback.tolist()
        [False, True]
        """
        if isinstance(people, Encoded):
            return people
        if people is not None:
            encoded = self._encode(self._read(people, unknown, ratings))
            return encoded if user_ids is None else self._prefer_known(encoded, user_ids)
        if user_ids is None:
            raise SettingError("say for whom", hint="users (strangers), user_ids, or both")
        rows = self.user_ids.rows(user_ids)
        seen, names = self._seen_by(rows), [self.user_ids[row] for row in rows]
        nobody = np.zeros(len(rows), dtype=bool)
        return Encoded(self.user_vectors[rows], {}, nobody, history=seen, names=names)

    def _encode(self, known: PeopleData) -> Encoded:
        with np.errstate(all="ignore"):  # what overflows is an error
            encoded = self.encoder.encode(known.features, known.history)
        check_computed(encoded.vectors)
        encoded.history, encoded.ignored, encoded.names = known.history, known.ignored, known.names
        part, answers = self.encoder.answers, known.answers
        if part is not None and answers is not None:
            rated = answers.select(~np.isnan(answers.data))
            encoded.vectors = encoded.vectors + part.deviation(answers)
            encoded.fallback = encoded.fallback & (answers.counts() == 0)
            encoded.history = union(encoded.history, rated)
            encoded.disliked = union(encoded.disliked, part.history.disliked(rated))
        return encoded

    def _read(
        self, people: People, unknown: Unknown, ratings: csr_array | None = None
    ) -> PeopleData:
        """Read what is known of people; histories may be given apart."""
        columns, n_rows = as_columns(people)
        check_choice("unknown", unknown, UNKNOWN)
        own = self.id_column(columns)
        if unknown == "error":
            check_fields(people, [n for n in columns if n != own], self.person_fields)

        def read(name: str) -> Histories:
            if name not in columns or name not in self.person_fields:
                return Histories(None, [])
            with blame(name):
                scale, is_answers = self.history_scale, name == ANSWERS
                return read_histories(columns[name], n_rows, self.item_ids, scale, is_answers)

        history, ignored = read(HISTORY)
        answers, unknown_items = read(ANSWERS)
        if ratings is not None:
            history = SparseRows.of(ratings)
            if history.shape != (n_rows, len(self.item_ids)):
                expected = f"{n_rows} people and {len(self.item_ids):,} items"
                raise DataError(f"a matrix of {history.shape} for {expected}")
        return PeopleData(
            features=self.features.encode(columns, n_rows),
            history=history,
            ignored=ignored + unknown_items,
            answers=answers,
            names=[] if own is None else _as_names(columns[own]),
        )

    def _prefer_known(self, encoded: Encoded, user_ids: Sequence[IdValue]) -> Encoded:
        """Return people with the vectors of training users, where they are some."""
        if len(user_ids) != len(encoded.vectors):
            raise DataError(f"{len(user_ids)} user_ids for {len(encoded.vectors)} people")
        rows = self.user_ids.find(user_ids)
        known = rows >= 0
        encoded.vectors[known] = self.user_vectors[rows[known]]
        encoded.weights = {name: np.where(known, 0, w) for name, w in encoded.weights.items()}
        encoded.fallback &= ~known
        encoded.history = union(self._seen_by(rows), encoded.history)
        encoded.names = [as_text(user_id, "user") for user_id in user_ids]
        return encoded

    def _seen_by(self, rows: np.ndarray) -> SparseRows:
        """Return what training users have rated, nothing for the row -1."""
        ends, items = self.seen.indptr, self.seen.indices
        # of row -1, a slice from the end to the beginning, which is empty
        lists = [items[ends[row] : ends[row + 1]] for row in rows.tolist()]
        return SparseRows.of_lists(lists, self.seen.shape[1])

    def score(
        self, people: People | Encoded, score: Score = "real", popularity: float = 1.0
    ) -> np.ndarray:
        """Compute the scores of the whole catalogue.

        Parameters
        ----------
        people
            As for `recommend`, or what `encode` returned.
        score
            "real" or "hamming".
        popularity
            How much the level of items counts, as for `recommend`.

        Returns
        -------
        numpy.ndarray
            People x items; who had nothing usable gets popularity, and what a person dislikes is
            below everything else.
        """
        weight = self.level_weight(popularity)
        encoded = self.encode(people)
        scores = self.items.scores(encoded.vectors, weight, self._by_code(score))
        check_computed(scores)
        if self.items.levels is None:
            scores[encoded.fallback] = self.popularity
        if encoded.disliked is not None:
            rows = encoded.disliked.owners()
            scores[rows, encoded.disliked.indices] = scores.min(axis=1)[rows] - 1
        return scores

    def recommend(
        self,
        users: People | Encoded | None = None,
        k: int = 10,
        *,
        user_ids: Sequence[IdValue] | None = None,
        exclude: ItemLists | None = None,
        candidates: ItemLists | None = None,
        where: Where | None = None,
        exclude_seen: bool = True,
        score: Score = "real",
        popularity: float = 1.0,
        threads: int | None = None,
        unknown: Unknown = "error",
        fields: Sequence[str] | None = None,
    ) -> results.Recommendations:
        """Return the k best items for strangers (`users`) or for training users (`user_ids`).

        Parameters
        ----------
        users
            A dict, a list of dicts, or a table; every column may be missing. A `history` (item id
            -> rating, or a list of item ids) counts, and its items are left out of the answer. Or
            what `encode` returned.
        k
            How many items.
        user_ids
            Users of the training data. Beside `users`, of the same number: then what is said there
            counts for whom the model does not know.
        exclude, candidates
            Items not to recommend, and the only ones to recommend: a list of item ids for
            everybody, or a list of such lists, one a user. Both may be given.
        where
            Columns of the item table and what to recommend of: a value, a list of which any value
            matches, or a range, such as ``{"genres": ["comedy", "drama"], "year": {"min": 1990}}``.
            All columns must match; of a column with several labels, any label.
        exclude_seen
            Leave out what a user has rated. False where things are bought again and again.
        score
            `real`: real-valued users against item codes. `hamming`: codes on both sides.
        popularity
            How much it counts what everybody likes, for a model with levels: from 1, the most
            accurate, to 0, only what sets a person apart.
        threads
            How many to use; None: one for one user, all cores for many.
        unknown
            As for `encode`.
        fields
            Columns of the item table to show beside the title.

        Returns
        -------
        Recommendations
            A small table, and the arrays that it is made of.

        Raises
        ------
        UnknownId
            A user or item id is not in the model.
        DataError
            A value or a rating cannot be right.
        SettingError
            An option asks for something impossible.

        Examples
        --------
        >>> from coldhash import MFDCF, read
        >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
        >>> answer = model.recommend({"age": 30, "gender": "female"}, k=3)
        >>> [row["rank"] for row in answer]
        [1, 2, 3]
        """
        check_positive("k", k)
        weight, items = self.level_weight(popularity), self.show(fields)
        by_code = self._by_code(score)
        encoded = self.encode(users, user_ids=user_ids, unknown=unknown)
        vectors, n_users = encoded.vectors, len(encoded.vectors)
        excluded = self._item_lists("exclude", exclude, n_users)
        if exclude_seen:
            excluded = union(excluded, encoded.history)
        allowed = self._item_lists("candidates", candidates, n_users)
        if allowed is not None and where is not None:
            allowed = allowed.select(self._filter.mask(where)[allowed.indices])
        last = None if exclude_seen else encoded.disliked
        n_found = k if last is None else k + int(last.counts().max())
        if threads is None:
            threads = 1 if n_users == 1 and len(self.items) < MANY_ITEMS else os.cpu_count() or 1
        check_positive("threads", threads)
        within = self._filter.subset(where)
        search = Search(excluded, allowed, within, threads, by_code, weight)
        rows, scores = self.items.best(vectors, n_found, search)
        if encoded.fallback.any() and self.items.levels is None:
            nothing = np.zeros_like(vectors)  # leaves ties, which popularity breaks
            popular, _ = self.items.best(nothing, n_found, search._replace(by_code=False))
            counts = np.where(popular >= 0, self.popularity[popular], -np.inf)
            mark = encoded.fallback[:, None]
            rows, scores = np.where(mark, popular, rows), np.where(mark, counts, scores)
        if last is not None:
            rows, scores = (found[:, :k] for found in move_to_the_end(rows, scores, last))
        return results.Recommendations(
            user_ids=encoded.names or [str(place) for place in range(n_users)],
            items=items,
            rows=rows,
            scores=scores,
            distances=code_items(self.items).distances(vectors, rows) if by_code else None,
            fallback=encoded.fallback,
            ignored=encoded.ignored,
        )

    def similar_items(
        self,
        item_id: IdValue,
        k: int = 10,
        *,
        where: Where | None = None,
        fields: Sequence[str] | None = None,
    ) -> results.Similar:
        """Return the items whose codes (or vectors) are nearest to an item's.

        Parameters
        ----------
        item_id
            An item of the model.
        k
            How many items.
        where, fields
            As for `recommend`.

        Returns
        -------
        Similar
            The nearest first, without the item itself.

        Raises
        ------
        UnknownId
            The item is not in the model.
        SettingError
            The item table has no such column.

        Examples
        --------
        >>> from coldhash import MFDCF, read
        >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
        >>> near = model.similar_items("7", k=3)
        >>> len(near), "7" in near.ids
        (3, False)
        """
        own = self.item_ids.rows([item_id])
        vector = self.items.rows(own).astype(np.float32)
        shown, within = self.show(fields).table, self._filter.subset(where)
        return results.find_similar(shown, self.items, vector, k, own, within)

    def similar_users(
        self, user: People | Encoded | None = None, k: int = 10, *, user_id: IdValue | None = None
    ) -> results.Similar:
        """Return the training users nearest to a stranger or to a training user.

        Parameters
        ----------
        user
            A stranger, as for `recommend`.
        k
            How many users.
        user_id
            A user of the training data, instead of a stranger.

        Returns
        -------
        Similar
            The nearest first, without the user.

        Examples
        --------
        >>> from coldhash import MFDCF, read
        >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
        >>> len(model.similar_users({"age": 30}, k=5))
        5
        """
        encoded = self.encode(user, user_ids=None if user_id is None else [user_id])
        own = self.user_ids.find([] if user_id is None else [user_id])
        shown = pa.table({USER_ID: self.user_ids.values})
        return results.find_similar(shown, self._users, encoded.vectors[:1], k, own, None)

    def explain(
        self, user: Person, item_id: IdValue, *, popularity: float = 1.0, unknown: Unknown = "error"
    ) -> results.Explanation:
        """Return what carried an item for a person: parts that add up to the score.

        Parameters
        ----------
        user
            A person, with or without a history.
        item_id
            An item of the model.
        popularity
            How much the level of the item counts, as for `recommend`.
        unknown
            As for `encode`.

        Returns
        -------
        Explanation
            A dict: the score, the contributions of popularity (for a model with levels), feature
            groups and rated items, the weights of the groups, and the three training users most
            like the person.

        Raises
        ------
        UnknownId
            The item is not in the model.
        SettingError
            As for `recommend`.

        Examples
        --------
        >>> from coldhash import MFDCF, read
        >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
        >>> why = model.explain({"age": 30, "history": {"7": 5}}, "12")
        >>> list(why["contributions"]), len(why["nearest_users"])
        (['popularity', 'demographics', 'rated 7'], 3)
        >>> abs(sum(why["contributions"].values()) - why["score"]) < 1e-6
        True
        """
        weight = self.level_weight(popularity)
        with blame("item_id"):
            row = self.item_ids.rows([item_id])
        item = self.items.rows(row)[0].astype(np.float64)
        known = self._read(user, unknown)
        encoded = self._encode(known)
        with np.errstate(all="ignore"):  # what overflows is an error
            parts = self.encoder.explain(known, encoded, self.item_ids)
        contributions: dict[str, float] = {}
        gain = 1.0
        if isinstance(self.items, CodeItems) and self.items.levels is not None:
            base, gain = self.items.level_terms(row, weight)[:, 0].tolist()
            level = "popularity (estimated)" if self.guesses[row[0]] else "popularity"
            contributions[level] = base * gain
        for name, vector in parts.items():
            contributions[name] = math.fsum(vector * (item * gain))
        return {
            "item_id": as_text(item_id),
            "title": None if self.titles is None else self.titles[int(row[0])].as_py(),
            "score": float(sum(contributions.values())),
            "contributions": contributions,
            "group_weights": {name: float(share[0]) for name, share in encoded.weights.items()},
            "nearest_users": self.similar_users(encoded, N_NEAREST).ids,
            "fallback": bool(encoded.fallback[0]),
            "ignored": [item for _, item in known.ignored],
        }

    def ask(
        self,
        user: Person | None = None,
        n: int = 1,
        *,
        kinds: Collection[QuestionKind] = ITEMS_AND_FIELDS,
        exclude: Iterable[IdValue] = (),
        candidates: Iterable[IdValue] | None = None,
        where: Where | None = None,
        unknown: Unknown = "error",
    ) -> list[Question]:
        """Return what to ask a person next, by what the answer is expected to improve.

        The answer to a question about an item goes into `answers` of the person: a rating, or None
        if the person does not know it. That to a question about a field goes into the field.

        Parameters
        ----------
        user
            What is known of the person: fields, `history` and `answers`.
        n
            How many questions: each is the best one once those before have been answered, so that
            they do not ask the same thing twice.
        kinds
            "items" to rate, "fields" of the person that are missing, or both.
        exclude, candidates
            Items not to ask about, and the only ones to ask about.
        where
            Attributes of the only items to ask about, as for `recommend`.
        unknown
            As for `encode`.

        Returns
        -------
        list of Question
            The best first, fewer than n if there is nothing else to ask. `gain` is the share that
            the answer is expected to settle of what is open about the person's list, and `known`
            the share of people who have rated the item.

        Raises
        ------
        SettingError
            The method does not learn from answers, or an option is impossible.
        UnknownId
            An item id is not in the model.
        DataError
            A value or a rating cannot be right.

        Examples
        --------
        >>> from coldhash import MFDCF, read
        >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
        >>> [question["kind"] for question in model.ask({"age": 30}, kinds=["items"], n=2)]
        ['item', 'item']
        >>> model.ask({"answers": {"7": 5, "12": None}}, kinds=["fields"])[0]["name"]
        'gender'
        """
        check_positive("n", n)
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            check_choice("kinds", kind, ITEMS_AND_FIELDS)
        person = {} if user is None else user
        if not isinstance(person, Mapping):
            raise DataError(f"a {type(person).__name__} instead of a person", hint='{"age": 25}')
        known = self._read(person, unknown)
        askable = self._filter.mask(where or {})
        among = self._item_lists("candidates", candidates, 1)
        if among is not None:
            askable &= np.isin(np.arange(len(askable)), among.indices)
        for given in (known.history, known.answers, self._item_lists("exclude", exclude, 1)):
            if given is not None:
                askable[given.indices] = False
        encoded = self._encode(known._replace(answers=None))
        with one_blas_thread():
            return find_questions(self, person, known, encoded, n, kinds, askable)

    def save(self, path: str | Path) -> None:
        """Write the model to one file, in one step; `coldhash.load` reads it.

        Parameters
        ----------
        path
            The file; an existing one is replaced.

        Raises
        ------
        SourceError
            The file cannot be written.
        """
        from coldhash.recommender.persistence import save_model

        save_model(self, Path(path))

    @cached_property
    def field_covariances(self) -> dict[tuple[str, str], np.ndarray]:
        """The covariance of what each field adds to training users' vectors, by group and name."""
        return compute_field_covariances(self.features, self.encoder)

    @cached_property
    def _users(self) -> Items:
        """The training users, laid out for search."""
        level = np.zeros(len(self.user_vectors))
        if self.has_codes:
            return CodeItems.of_codes(signs(self.user_vectors), level)
        return RealItems(self.user_vectors, level)

    def _item_lists(
        self, argument: str, lists: ItemLists | None, n_users: int
    ) -> SparseRows | None:
        """Return the rows of lists of item ids, for everybody or one a user, for each user."""
        if lists is None:
            return None
        given: Any = lists
        if isinstance(lists, Iterable) and not isinstance(lists, str):
            given = list(lists)
        first = given[0] if isinstance(given, list) and given else None
        per_user = isinstance(first, Iterable) and not isinstance(first, str | bytes)
        if per_user and len(given) != n_users:
            raise DataError(f"{len(given)} lists of items for {n_users} users")
        with blame(argument):
            found = [self.item_ids.rows(each) for each in (given if per_user else [given])]
        return SparseRows.of_lists(found if per_user else found * n_users, len(self.item_ids))

    @cached_property
    def _filter(self) -> ItemFilter:
        return ItemFilter(self.items, self.item_table, self.features.content.columns)

    def _by_code(self, score: Score) -> bool:
        check_choice("score", score, SCORES)
        if score == "hamming" and not self.has_codes:
            with blame("score"):
                message = f"{self.name} has real-valued items, so no Hamming distance"
                raise SettingError(message, hint="score='real'")
        return score == "hamming"

    def level_weight(self, popularity: float) -> float:
        """Return the weight of levels for `popularity`: its cube, so that accuracy falls evenly.

        Parameters
        ----------
        popularity
            As for `recommend`.

        Returns
        -------
        float
            From 0 to 1.

        Raises
        ------
        SettingError
            It is no share, or the items have no level to weigh.
        """
        if popularity == 1:
            return 1.0
        with blame("popularity"):
            if not 0 <= popularity <= 1:
                raise SettingError(f"popularity={popularity}", hint="from 0 to 1")
            if self.items.levels is None:
                raise SettingError(
                    f"{self.name} gives items no level, so popularity cannot be weighed",
                    hint="popularity=1, or a model of MFDCF with level=True",
                )
        return popularity**3


def _as_names(column: Value) -> list[str]:
    """Return what people are called: their ids, or else their places."""
    values = column.to_pylist() if isinstance(column, pa.ChunkedArray) else column
    # whole numbers are floats in a pandas column where one is missing
    values = [int(n) if isinstance(n, float) and n.is_integer() else n for n in values]
    return [str(place) if name is None else str(name) for place, name in enumerate(values)]
