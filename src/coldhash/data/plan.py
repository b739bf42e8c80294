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

    [labels.gender]
    F = "female"
    M = "male"

`users` holds named groups of columns of the user table: a user has a group or lacks it. `items`
does the same for the item table, and `preference` turns the content of the items that a user rated
into one more group of that user, "preference", in a fit with `level=False`. `labels` names coded
values of a column of either table where they are shown; the data and requests keep the codes.
"""

from __future__ import annotations

import json
import re
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from coldhash.data import as_days, looks_like_date
from coldhash.errors import ColumnError, DataError, SettingError, UnlikelyData

CONSTANT = "constant"
FEW_ROWS = 10  # of so few nothing is unlikely
_FEW_VALUES = 24  # of numbers and unclear dates: categories
_BYTES = (pa.binary(), pa.large_binary())
_ID_NAME = re.compile(r"(^|_|(?<=[a-z]))(id|Id|ID)$")
_TIME_NAME = re.compile(r"(time|date|day|stamp|(^|_)ts|_at|_on)$", re.IGNORECASE)


class Strict(BaseModel):
    """Part of a TOML file; unknown names and invalid values are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TomlConfig(Strict):
    """What a TOML file describes."""

    HINT: ClassVar[str | None] = None

    def __init__(self, **values: object) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            first = error.errors()[0]  # the first invalid part
            place = ".".join(map(str, first["loc"]))
            reason = first["msg"].removeprefix("Value error, ")
            title = f"{type(self).__name__}, {place}" if place else type(self).__name__
            raise SettingError(f"{title}: {reason}", hint=self.HINT) from None

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """Read the values from a TOML file.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        FeaturePlan, Experiment or Study
            What the file describes.

        Raises
        ------
        SettingError
            If the file cannot be read, is not TOML, or has an invalid value.
        """
        try:
            return cls(**tomllib.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise SettingError(f"{path}: {error.strerror}", hint=cls.HINT) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingError(f"{path}: not TOML: {error}", hint=cls.HINT) from None
        except SettingError as error:
            raise SettingError(f"{path}: {error.message}", hint=error.hint) from None


class Category(Strict):
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


class MultiLabel(Strict):
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


class Number(Strict):
    """A column of quantities, in soft buckets between quantiles.

    Parameters
    ----------
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
    n_knots: Annotated[int, Field(ge=2, le=256)] = 8


class Date(Strict):
    """A column of dates or moments: the age in days, in soft buckets like those of a number.

    The age is counted back from the newest date of the training data. A date is a Python or Arrow
    date or timestamp, an ISO text such as "2024-01-31" or "2024-01-31T12:00:00Z", or a whole
    number: seconds (or milli-, micro- or nanoseconds) since 1970, or 20240131.

    Parameters
    ----------
    n_knots : int
        The number of quantiles.

    Examples
    --------
    >>> from coldhash import Dataset, fit_features
    >>> data = Dataset.from_tables(
    ...     ratings={"user_id": [1, 2], "item_id": ["a", "b"], "rating": [5, 3]},
    ...     users={"user_id": [1, 2], "joined": ["2024-01-01", "2024-01-31"]},
    ...     plan=FeaturePlan(users={"who": {"joined": Date(n_knots=2)}}),
    ... )
    >>> found = fit_features(data).apply({"joined": "2024-01-16"})
    >>> found.matrices["who"].round(2).tolist()  # as near to the newest as to the oldest date
    [[0.5, 0.5, 1.0]]
    """

    kind: Literal["date"] = "date"
    n_knots: Annotated[int, Field(ge=2, le=256)] = 8


class Text(Strict):
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


class Vector(Strict):
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


class Preference(Strict):
    """The average content of the items that a user rated.

    Parameters
    ----------
    max_width : int
        Wider content is projected on this many directions.

    Examples
    --------
    >>> plan = FeaturePlan(items={"content": {"genres": "multi-label"}}, preference=Preference())
    >>> print(plan.to_toml(), end="")
    [items.content]
    genres = "multi-label"
    <BLANKLINE>
    [preference]
    max_width = 128
    """

    max_width: Annotated[int, Field(ge=1)] = 128


Column = Category | MultiLabel | Number | Date | Text | Vector
_Column = Annotated[
    Column,
    Field(discriminator="kind"),
    BeforeValidator(lambda column: {"kind": column} if isinstance(column, str) else column),
]
Groups = dict[str, Annotated[dict[str, _Column], Field(min_length=1)]]
Code = Annotated[str, BeforeValidator(str)]  # keys of TOML are texts, those of a dict may be not
Labels = dict[str, dict[Code, str]]


class FeaturePlan(TomlConfig):
    """Which columns of the two tables become which features.

    Parameters
    ----------
    users, items : dict of str to dict
        Named groups of columns: column name -> kind, such as `"category"` or `Category()`.
    preference : Preference, optional
        Adds the group "preference", computed from the items that a user rated, to a fit of `MFDCF`
        without levels; strangers do not have it.
    labels : dict of str to dict
        What values of a column are called where they are shown: column name -> value -> label.

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

    HINT = (
        "tables such as [users.profile] with lines such as age = 'number'; "
        "kinds of column: category, date, multi-label, number, text, vector"
    )
    users: Groups = {}
    items: Groups = {}
    preference: Preference | None = None
    labels: Labels = {}

    def __init__(self, **parts: object) -> None:
        super().__init__(**parts)  # for type checkers: a kind may be written as its name

    @model_validator(mode="after")
    def _check_groups(self) -> FeaturePlan:
        if "preference" in self.users:
            raise ValueError("users.preference is a taken name: use the [preference] table")
        if self.preference is not None and not self.items:
            raise ValueError("a preference needs item columns to be made from")
        return self

    def check_tables(self, users: pa.Table, items: pa.Table) -> None:
        """Raise an error if the plan names a column that is not there.

        Parameters
        ----------
        users, items : pyarrow.Table
            The tables that the plan is for.

        Raises
        ------
        ColumnError
            If a column is in neither, or not in the one that needs it.
        """
        for side, groups, table in (("user", self.users, users), ("item", self.items, items)):
            for group, columns in groups.items():
                what = f"group {group!r} needs"
                _check_columns(columns, what, table.column_names, f"the {side} table has")
        every = [*users.column_names, *items.column_names]
        _check_columns(self.labels, "labels need", every, "the tables have")

    def to_toml(self) -> str:
        """Return the plan as TOML, defaults left out.

        Returns
        -------
        str
        """
        tables: dict[tuple[str, ...], Mapping[str, object]] = {}
        tables |= {("users", group): columns for group, columns in self.users.items()}
        tables |= {("items", group): columns for group, columns in self.items.items()}
        if self.preference is not None:
            tables["preference",] = self.preference.model_dump()
        tables |= {("labels", name): labels for name, labels in self.labels.items()}
        lines = []
        for title, rows in tables.items():
            body = [f"{_toml_key(name)} = {_toml_value(value)}" for name, value in rows.items()]
            lines += [f"[{'.'.join(map(_toml_key, title))}]", *body, ""]
        return "\n".join(lines)


PlanLike: TypeAlias = FeaturePlan | Mapping[str, object] | str | Path  # or the path of its TOML


def as_plan(plan: object) -> FeaturePlan:
    """Return a plan that was given as such, as a dict, or as the path of a TOML file."""
    if isinstance(plan, FeaturePlan):
        return plan
    if isinstance(plan, str | Path):
        return FeaturePlan.from_toml(plan)
    if isinstance(plan, Mapping):
        return FeaturePlan(**{str(part): value for part, value in plan.items()})
    hint = "a FeaturePlan, a dict such as {'users': {'profile': {'age': 'number'}}}, or a TOML file"
    raise SettingError(f"a {type(plan).__name__} is not a feature plan", hint=hint)


def _check_columns(columns: Iterable[str], what: str, names: list[str], where: str) -> None:
    for column in columns:
        if column not in names:
            hint = f"{where}: {', '.join(names) or '-'}"
            raise ColumnError(f"the plan's {what} column {column!r}", hint=hint)


def guess_plan(users: pa.Table, items: pa.Table) -> FeaturePlan:
    """Guess a plan from the columns: one group of users, one of items, and preference."""
    parts: dict[str, object] = {}
    for side, group, table in (("users", "profile", users), ("items", "content", items)):
        guesses = {name: guess_column(name, table.column(name)) for name in table.column_names}
        columns = {name: guess for name, guess in guesses.items() if not isinstance(guess, str)}
        constant = [repr(name) for name, guess in guesses.items() if guess == CONSTANT]
        if constant:
            message = f"constant columns of the {side[:-1]} table, left out ({len(constant)}): "
            warnings.warn(message + ", ".join(constant[:10]), UnlikelyData, stacklevel=3)
        parts[side] = {group: columns} if columns else {}
    return FeaturePlan(**parts, preference=Preference() if parts["items"] else None)


def guess_column(name: str, column: pa.ChunkedArray) -> Column | str:
    """Guess what a column becomes; of one without information, return why it is left out."""
    known, kind = column.drop_null(), column.type
    if not len(known):
        return "all values are missing"
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return _guess_lists(known)
    if pa.types.is_nested(kind) or kind in _BYTES:
        return f"values of type {kind}"
    n_known, n_distinct = len(known), pc.count_distinct(known).as_py()
    if n_distinct < 2:
        return CONSTANT if n_known >= FEW_ROWS else "constant in a few rows"
    date = _guess_date(name, known)
    if isinstance(date, Date) or (date is not None and n_distinct > _FEW_VALUES):
        return date
    is_text = pa.types.is_string(kind)
    separator = _guess_separator(known, n_distinct) if is_text else None
    if separator is not None:
        return MultiLabel(separator=separator)
    is_code = is_text or (pa.types.is_integer(kind) and _ID_NAME.search(name) is not None)
    if n_distinct <= _FEW_VALUES or (is_code and n_distinct <= n_known / 2):
        return Category()
    if is_text and pc.mean(pc.add(pc.count_substring(known, " "), 1)).as_py() >= 2:
        return Text()
    if is_code:
        return "an id: most values occur once"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return Number()
    return f"values of type {kind}"


def describe_columns(
    table: pa.Table, groups: Groups, labels: Labels
) -> dict[str, dict[str, object]]:
    """Return the type of each column, its values, and what it becomes or why it is left out."""
    kinds = {name: spec.kind for columns in groups.values() for name, spec in columns.items()}
    described: dict[str, dict[str, object]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        guess = guess_column(name, column) if name not in kinds else ""
        why_not = guess if isinstance(guess, str) else "not in the plan"
        is_list = pa.types.is_nested(column.type)
        described[name] = {
            "type": str(column.type),
            "missing": column.null_count,
            "distinct": None if is_list else len(column.drop_null().unique()),
            "becomes": kinds.get(name) or f"left out: {why_not}",
        }
        if name in labels:
            counts = Counter(map(str, column.to_pylist()))
            named = {label: counts[value] for value, label in labels[name].items()}
            described[name]["values"] = named
    return described


def _guess_lists(known: pa.ChunkedArray) -> Column | str:
    kind, lengths = known.type.value_type, pc.unique(pc.list_value_length(known))
    if not pc.any(pc.greater(lengths, 0)).as_py():
        return "all lists are empty"
    if pa.types.is_nested(kind) or kind in _BYTES:
        return f"values of type {known.type}"
    if not pa.types.is_floating(kind):
        return MultiLabel()
    return Vector() if len(lengths) == 1 else "vectors of different lengths"


def _guess_date(name: str, known: pa.ChunkedArray) -> Date | str | None:
    """Recognize dates by type, as texts, or as numbers in a column that is called like a time."""
    if pa.types.is_date(known.type) or pa.types.is_timestamp(known.type):
        return Date()
    is_number = pa.types.is_integer(known.type) and _TIME_NAME.search(name)
    is_text = pa.types.is_string(known.type) and looks_like_date(known[0].as_py())
    if not is_number and not is_text:
        return None
    for value in pc.unique(known).to_pylist():
        try:
            as_days(value)
        except DataError:
            return f"dates, but {value!r} is not clear: write 2024-01-31" if is_text else None
    return Date()


def _guess_separator(known: pa.ChunkedArray, n_distinct: int) -> str | None:
    """Guess what separates labels: at least a tenth of the values hold it.

    Commas and semicolons also occur in names and sentences. They separate labels if there are
    fewer labels than different values.
    """
    for separator in "|;,":
        if pc.mean(pc.match_substring(known, separator)).as_py() >= 0.1:
            parts = pc.list_flatten(pc.split_pattern(pc.unique(known), separator))
            n_labels = pc.count_distinct(pc.utf8_trim_whitespace(parts)).as_py()
            if separator == "|" or n_labels < n_distinct:
                return separator
    return None


def _toml_key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: object) -> str:
    if isinstance(value, Column):
        options = value.model_dump(exclude_defaults=True)
        value = {"kind": value.kind} | options if options else value.kind
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml_value(v)}" for name, v in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
