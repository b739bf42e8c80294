"""FeaturePlan: which column of which table becomes what.

A plan says nothing about values; `features/` learns those. In TOML:

    [users.demographics]
    gender = "category"
    age = {kind = "number", n_knots = 6}

    [items.content]
    genres = "multi-label"
    title = {kind = "text", max_words = 1000}

    [preference]
    max_width = 128

`users` holds named groups of columns of the user table: a group is what a user has or lacks.
`items` does the same for the item table, and `preference` turns the content of the items that a
user rated into one more group of that user, named "preference".
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from coldhash.data.toml_forms import mistake, read_toml

PREFERENCE = "preference"
KINDS = "kinds of column: category, multi-label, number, text, vector"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Category(_Part):
    """One value of a set: one-hot. Values seen less than `min_count` times share one column.

    Examples
    --------
    >>> from coldhash import fit_features, read
    >>> data = read("sample", n_users=100, n_items=50)
    >>> plan = FeaturePlan(users={"where": {"city": Category(min_count=10)}})
    >>> fit_features(data.with_plan(plan)).widths  # the frequent cities, the others, a constant
    {'where': 4}
    """

    kind: Literal["category"] = "category"
    min_count: Annotated[int, Field(ge=1)] = 5


class MultiLabel(_Part):
    """Several values of a set, in a list or in one text with a separator.

    Examples
    --------
    >>> from coldhash import Dataset, fit_features
    >>> data = Dataset.from_tables(
    ...     ratings={"user_id": [1, 2], "item_id": ["a", "b"], "rating": [5, 3]},
    ...     users={"user_id": [1, 2], "likes": ["jazz|rock", "rock"]},
    ...     plan=FeaturePlan(users={"taste": {"likes": MultiLabel(min_count=1)}}),
    ... )
    >>> found = fit_features(data).apply({"likes": "rock|polka"})
    >>> found.matrices["taste"].tolist()  # rock, jazz, and a constant
    [[1.0, 0.0, 1.0]]
    """

    kind: Literal["multi-label"] = "multi-label"
    separator: Annotated[str, Field(min_length=1)] = "|"
    min_count: Annotated[int, Field(ge=1)] = 2


class Number(_Part):
    """A quantity: soft buckets between quantiles (`buckets`), or one `standard` score.

    Examples
    --------
    >>> from coldhash import fit_features, read
    >>> plan = FeaturePlan(users={"who": {"age": Number(n_knots=4)}})
    >>> encoder = fit_features(read("sample", n_users=100, n_items=50).with_plan(plan))
    >>> encoder.widths  # the knots and a constant
    {'who': 5}
    """

    kind: Literal["number"] = "number"
    method: Literal["buckets", "standard"] = "buckets"
    n_knots: Annotated[int, Field(ge=2, le=256)] = 8


class Text(_Part):
    """Words, weighted by how rare they are.

    Examples
    --------
    >>> from coldhash import fit_features, read
    >>> words = {"content": {"title": Text(max_words=20)}}
    >>> plan = FeaturePlan(items=words, preference=Preference())
    >>> encoder = fit_features(read("sample", n_users=100, n_items=300).with_plan(plan))
    >>> encoder.content.columns["title"].width
    20
    """

    kind: Literal["text"] = "text"
    min_count: Annotated[int, Field(ge=1)] = 5
    max_words: Annotated[int, Field(ge=1)] = 1000


class Vector(_Part):
    """Numbers that somebody else computed: an embedding, all of one length.

    Examples
    --------
    >>> from coldhash import Dataset, fit_features
    >>> data = Dataset.from_tables(
    ...     ratings={"user_id": [1, 2], "item_id": ["a", "b"], "rating": [5, 3]},
    ...     users={"user_id": [1, 2], "embedding": [[0.5, 1.0], [0.0, 2.0]]},
    ...     plan=FeaturePlan(users={"given": {"embedding": Vector()}}),
    ... )
    >>> fit_features(data).widths  # two numbers and a constant
    {'given': 3}
    """

    kind: Literal["vector"] = "vector"


class Preference(_Part):
    """The content of the items that a user rated, reduced to `max_width` where wider.

    Examples
    --------
    >>> from coldhash import fit_features, read
    >>> plan = FeaturePlan(items={"content": {"genres": "multi-label"}}, preference=Preference())
    >>> data = read("sample", n_users=100, n_items=50).with_plan(plan)
    >>> features = fit_features(data).apply(data.users, data.ratings.matrix)
    >>> bool(features.has["preference"][0])  # the first user has rated something
    True
    """

    max_width: Annotated[int, Field(ge=1)] = 128


def _spelled_out(column: Any) -> Any:
    return {"kind": column} if isinstance(column, str) else column


Column = Annotated[
    Category | MultiLabel | Number | Text | Vector,
    Field(discriminator="kind"),
    BeforeValidator(_spelled_out),
]
Groups = dict[str, dict[str, Column]]


class FeaturePlan(_Part):
    """Named groups of columns of the two tables; see the module for how to write one.

    Examples
    --------
    >>> plan = FeaturePlan(users={"who": {"age": "number", "city": Category(min_count=1)}})
    >>> print(plan.to_toml(), end="")
    [users.who]
    age = "number"
    city = {kind = "category", min_count = 1}
    """

    users: Groups = {}
    items: Groups = {}
    preference: Preference | None = None

    def __init__(self, **parts: Any) -> None:
        try:
            super().__init__(**parts)
        except ValidationError as error:
            raise mistake("feature plan", error, hint=KINDS) from None

    @model_validator(mode="after")
    def _check_groups(self) -> FeaturePlan:
        if PREFERENCE in self.users:
            raise ValueError("users.preference is a taken name: use the [preference] table")
        for side, groups in (("users", self.users), ("items", self.items)):
            for group, columns in groups.items():
                if not columns:
                    raise ValueError(f"{side}.{group} has no columns")
        if self.preference is not None and not self.items:
            raise ValueError("a preference needs item columns to be made from")
        return self

    @classmethod
    def from_toml(cls, path: str | Path) -> FeaturePlan:
        """Read a plan from a TOML file."""
        return read_toml(cls, path)

    def to_toml(self) -> str:
        """Write the plan as TOML, defaults left out."""
        lines = []
        for side, groups in (("users", self.users), ("items", self.items)):
            for group, columns in groups.items():
                lines.append(f"[{side}.{_toml_key(group)}]")
                for name, column in columns.items():
                    lines.append(f"{_toml_key(name)} = {_toml_column(column)}")
                lines.append("")
        if self.preference is not None:
            lines += [f"[{PREFERENCE}]", f"max_width = {self.preference.max_width}", ""]
        return "\n".join(lines)


def guess_plan(users: pa.Table, items: pa.Table) -> FeaturePlan:
    """Guess a good plan from the columns: one group for users, one for items, and preference."""
    user_columns, item_columns = _guess_columns(users), _guess_columns(items)
    return FeaturePlan(
        users={"profile": user_columns} if user_columns else {},
        items={"content": item_columns} if item_columns else {},
        preference=Preference() if item_columns else None,
    )


def _guess_columns(table: pa.Table) -> dict[str, _Part]:
    guesses = {name: _guess(table.column(name)) for name in table.column_names}
    return {name: guess for name, guess in guesses.items() if guess is not None}


def _guess(column: pa.ChunkedArray) -> _Part | None:
    """Guess the kind of one column; None for one that tells nothing (constant, or an id)."""
    known = column.drop_null()
    if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        return _guess_lists(known)
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type) or not len(known):
        return None
    n_known, n_distinct = len(known), pc.count_distinct(known).as_py()
    if n_distinct < 2:
        return None
    if pa.types.is_string(column.type) and _share_with_bars(known) >= 0.1:
        return MultiLabel()
    if n_distinct <= 24:
        return Category()
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return Number()
    if not pa.types.is_string(column.type):
        return None
    if n_distinct <= n_known / 2:
        return Category()
    words = pc.mean(pc.add(pc.count_substring(known, " "), 1)).as_py()
    return Text() if words >= 2 else None


def _guess_lists(known: pa.ChunkedArray) -> _Part | None:
    lengths = pc.unique(pc.list_value_length(known))
    if not pc.any(pc.greater(lengths, 0)).as_py() or pa.types.is_nested(known.type.value_type):
        return None
    if not pa.types.is_floating(known.type.value_type):
        return MultiLabel()
    return Vector() if len(lengths) == 1 else None


def _share_with_bars(known: pa.ChunkedArray) -> float:
    return float(pc.mean(pc.match_substring(known, "|").cast(pa.int8())).as_py())


def _toml_column(column: Column) -> str:
    options = column.model_dump(exclude_defaults=True)
    if not options:
        return _toml_value(column.kind)
    options = {"kind": column.kind} | options
    return "{" + ", ".join(f"{name} = {_toml_value(v)}" for name, v in options.items()) + "}"


def _toml_key(key: str) -> str:
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if bare else _toml_value(key)


def _toml_value(value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
