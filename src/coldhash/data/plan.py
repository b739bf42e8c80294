"""FeaturePlan: which column of which table becomes what.

A plan holds no values; `coldhash.features` learns those. In TOML:

    [users.demographics]
    gender = "category"
    age = {kind = "number", n_knots = 6}

    [items.content]
    genres = "multi-label"
    title = {kind = "text", max_words = 1000}

    [preference]
    max_width = 128

`users` holds named groups of columns of the user table: a user has a group or lacks it. `items`
does the same for the item table, and `preference` turns the content of the items that a user rated
into one more group of that user, named "preference".
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from coldhash.errors import SettingError

Form = TypeVar("Form", bound=BaseModel)


def read_toml(form: type[Form], path: str | Path) -> Form:
    """Read a pydantic model from a TOML file; an error names the file and the place in it."""
    try:
        return form(**tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise SettingError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: not TOML: {error}") from None
    except SettingError as error:
        raise SettingError(f"{path}: {error.message}", hint=error.hint) from None


def validation_error(title: str, error: ValidationError, hint: str | None = None) -> SettingError:
    """Return the error that names the first invalid part of a pydantic model."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    reason = first["msg"].removeprefix("Value error, ")
    return SettingError(f"{title}, {place}: {reason}" if place else f"{title}: {reason}", hint=hint)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Category(_Part):
    """A column with one label per row, one-hot encoded.

    Parameters
    ----------
    min_count : int
        Labels that occur less often share one column.

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
    """A column with several labels per row, in a list or in one text.

    Parameters
    ----------
    separator : str
        What separates labels in a text.
    min_count : int
        Labels that occur less often share one column.

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
    """A column of quantities.

    Parameters
    ----------
    method : {"buckets", "standard"}
        Soft buckets between quantiles, or one standard score.
    n_knots : int
        The number of quantiles.

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
    """A column of texts: words, weighted by how rare they are.

    Parameters
    ----------
    min_count : int
        Words that occur less often are ignored.
    max_words : int
        The number of words to keep, the most frequent ones.

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
    """A column of embeddings: lists of numbers, all of one length.

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
    """The average content of the items that a user rated.

    Parameters
    ----------
    max_width : int
        Wider content is projected on this many directions.

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


Column = Annotated[
    Category | MultiLabel | Number | Text | Vector,
    Field(discriminator="kind"),
    BeforeValidator(lambda column: {"kind": column} if isinstance(column, str) else column),
]
Groups = dict[str, dict[str, Column]]


class FeaturePlan(_Part):
    """Which columns of the two tables become which features.

    Parameters
    ----------
    users, items : dict of str to dict
        Named groups of columns: column name -> kind, such as `"category"` or `Category()`.
    preference : Preference, optional
        Adds the group "preference", computed from the items that a user rated.

    Raises
    ------
    SettingError
        If a kind or a setting is unknown, or a group is empty.

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

    def __init__(self, **parts: object) -> None:
        try:
            super().__init__(**parts)
        except ValidationError as error:
            hint = "kinds of column: category, multi-label, number, text, vector"
            raise validation_error("feature plan", error, hint) from None

    @model_validator(mode="after")
    def _check_groups(self) -> FeaturePlan:
        if "preference" in self.users:
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
        """Read a plan from a TOML file.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        FeaturePlan

        Raises
        ------
        SettingError
            If the file cannot be read, or is not a plan.
        """
        return read_toml(cls, path)

    def to_toml(self) -> str:
        """Return the plan as TOML, defaults left out.

        Returns
        -------
        str
        """
        lines = []
        for side, groups in (("users", self.users), ("items", self.items)):
            for group, columns in groups.items():
                lines.append(f"[{side}.{_toml_key(group)}]")
                for name, column in columns.items():
                    lines.append(f"{_toml_key(name)} = {_toml_column(column)}")
                lines.append("")
        if self.preference is not None:
            lines += ["[preference]", f"max_width = {self.preference.max_width}", ""]
        return "\n".join(lines)


def guess_plan(users: pa.Table, items: pa.Table) -> FeaturePlan:
    """Guess a plan from the columns: one group of users, one of items, and preference."""
    parts: dict[str, object] = {}
    for side, group, table in (("users", "profile", users), ("items", "content", items)):
        guesses = {name: _guess(table.column(name)) for name in table.column_names}
        columns = {name: guess for name, guess in guesses.items() if guess is not None}
        parts[side] = {group: columns} if columns else {}
    return FeaturePlan(**parts, preference=Preference() if parts["items"] else None)


def _guess(column: pa.ChunkedArray) -> _Part | None:
    """Guess the kind of one column; None for one without information (constant, or an id)."""
    known = column.drop_null()
    if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        return _guess_lists(known)
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type) or not len(known):
        return None
    n_known, n_distinct = len(known), pc.count_distinct(known).as_py()
    if n_distinct < 2:
        return None
    is_text = pa.types.is_string(column.type)
    if is_text and pc.mean(pc.match_substring(known, "|").cast(pa.int8())).as_py() >= 0.1:
        return MultiLabel()
    if n_distinct <= 24 or (is_text and n_distinct <= n_known / 2):
        return Category()
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return Number()
    if not is_text:
        return None
    words = pc.mean(pc.add(pc.count_substring(known, " "), 1)).as_py()
    return Text() if words >= 2 else None


def _guess_lists(known: pa.ChunkedArray) -> _Part | None:
    lengths = pc.unique(pc.list_value_length(known))
    if not pc.any(pc.greater(lengths, 0)).as_py() or pa.types.is_nested(known.type.value_type):
        return None
    if not pa.types.is_floating(known.type.value_type):
        return MultiLabel()
    return Vector() if len(lengths) == 1 else None


def _toml_column(column: Column) -> str:
    options = column.model_dump(exclude_defaults=True)
    if not options:
        return _toml_value(column.kind)
    options = {"kind": column.kind} | options
    return "{" + ", ".join(f"{name} = {_toml_value(v)}" for name, v in options.items()) + "}"


def _toml_key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: str | int) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
