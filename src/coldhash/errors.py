"""Every error that coldhash raises on purpose.

    ColdhashError
    ├── SettingError (ValueError)       an argument, option or plan asks for something impossible
    ├── DataError (ValueError)          ratings or tables hold something that cannot be right
    │   ├── TableError                  ... in a file: carries the file, the line and the column
    │   └── ColumnError                 ... a column that is needed is not there, or there twice
    ├── UnknownId (KeyError)            an id that this data or model has never seen
    ├── ModelFileError (ValueError)     a file that is not a model, or not one of this version
    ├── WorkerError (RuntimeError)      the workers of a cluster died, or are out of memory
    └── SourceError (OSError)           a file, archive or download is missing or unusable
        └── ChecksumError               ... its bytes are not the ones that were promised

An error names the thing and, after `hint:`, the way out. There are three warnings. `CodeCollapse`:
people who differ got the same code. `UnlikelyData`: tables do not fit each other, or a column says
nothing; one of its kind is `UnlikelyFavourites`: almost no rating is a favourite, or almost every
one. `UnknownColumns`: a table of people has columns that a model does not use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, get_type_hints

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MAX_SETTING = 1e12  # the squares of larger ones leave single precision


class ColdhashError(Exception):
    """The root: catch this to catch everything the library raises on purpose.

    Examples
    --------
    >>> import coldhash as ch
    >>> try:
    ...     ch.read("netflix")
    ... except ColdhashError as error:
    ...     print(error.message)
    ...     print(error.hint.split("; ")[1])
    no data set is called 'netflix'
    your own tables: Dataset.from_tables(...)
    """

    argument: str | None = None  # the argument that is wrong, where the caller may want to know

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; hint: {self.hint}" if self.hint else self.message


@contextmanager
def blame(argument: str) -> Iterator[None]:
    """Name the argument that an error raised in the block is about."""
    try:
        yield
    except ColdhashError as error:
        error.argument = error.argument or argument
        raise


class SettingError(ColdhashError, ValueError):
    """An argument, option or feature plan asks for something impossible.

    Examples
    --------
    >>> from coldhash import MFDCF
    >>> MFDCF(n_bits=8)
    Traceback (most recent call last):
        ...
    coldhash.errors.SettingError: MFDCF: n_bits=8; hint: more than 8, which are for the level
    """


class DataError(ColdhashError, ValueError):
    """Ratings or tables hold something that cannot be right.

    Examples
    --------
    >>> from coldhash import Ratings
    >>> Ratings.from_columns(["ann", "ann"], ["x", "x"], [5, 4])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    coldhash.errors.DataError: row 1: user 'ann' rated item 'x' already, in row 0; ...
    """


class TableError(DataError):
    """A file holds something that cannot be read; names the line and the column.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from coldhash import Dataset
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "r.csv")
    ...     _ = path.write_text(chr(10).join(["user_id,item_id,rating", "1,2,five"]))
    ...     try:
    ...         Dataset.from_tables(path)
    ...     except TableError as error:
    ...         error.line, error.column
    (2, 'rating')
    """

    def __init__(
        self,
        message: str,
        *,
        file: str,
        line: int | None = None,
        column: str | None = None,
        hint: str | None = None,
    ) -> None:
        at = "" if line is None else f", line {line}"
        of = "" if column is None else f", column {column!r}"
        super().__init__(f"{file}{at}{of}: {message}", hint=hint)
        self.file, self.line, self.column = file, line, column


class ColumnError(DataError):
    """A column that is needed is not there, or is there twice.

    Examples
    --------
    >>> from coldhash import Dataset
    >>> Dataset.from_tables(
    ...     {"customer": [1], "item_id": [2], "rating": [5]}
    ... )  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    coldhash.errors.ColumnError: the ratings table has no column for user_id: it ...
    """


class UnknownId(ColdhashError, KeyError):
    """An id that this data or model has never seen.

    Examples
    --------
    >>> from coldhash import Ids
    >>> Ids.of(["a", "b"], "item").rows(["c"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    coldhash.errors.UnknownId: item 'c' is not among the 2 known ones; hint: ids ...
    """


class ModelFileError(ColdhashError, ValueError):
    """A file that is not a model file, or not one that this version can read.

    Examples
    --------
    >>> from tempfile import NamedTemporaryFile
    >>> from coldhash import load
    >>> with NamedTemporaryFile(suffix=".coldhash") as file:
    ...     try:
    ...         load(file.name)
    ...     except ModelFileError:
    ...         print("not a model")
    not a model
    """


class WorkerError(ColdhashError, RuntimeError):
    """The workers of a cluster died, or are out of memory.

    Examples
    --------
    >>> try:
    ...     raise WorkerError("the workers are gone", hint="a smaller --part-users")
    ... except RuntimeError as error:
    ...     print(error)
    the workers are gone; hint: a smaller --part-users
    """


class SourceError(ColdhashError, OSError):
    """A file, archive or download is missing or unusable.

    Examples
    --------
    >>> from coldhash import load
    >>> try:
    ...     load("nowhere.coldhash")
    ... except OSError as error:
    ...     type(error).__name__
    'SourceError'
    """


class ChecksumError(SourceError):
    """The bytes of a file are not the ones that were promised.

    Examples
    --------
    >>> issubclass(ChecksumError, SourceError), issubclass(ChecksumError, OSError)
    (True, True)
    """


class CodeCollapse(UserWarning):
    """People who differ got the same code.

    Examples
    --------
    >>> import warnings
    >>> from coldhash import MFDCF, read
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", CodeCollapse)
    ...     model = MFDCF(n_bits=10).fit(read("sample", n_users=200, n_items=60))
    >>> caught[0].category.__name__  # 200 people have at most 4 codes of two bits
    'CodeCollapse'
    """


class UnlikelyData(UserWarning):
    """Tables do not fit each other, or a column holds one value only.

    Examples
    --------
    >>> import warnings
    >>> from coldhash import Dataset
    >>> table = {"user_id": [*range(20)], "item_id": ["a", "b"] * 10, "rating": [1, 2, 3, 4] * 5}
    >>> users = {"user_id": [f"{user:04}" for user in range(20)], "age": [*range(20, 40)]}
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", UnlikelyData)
    ...     data = Dataset.from_tables(table, users)
    >>> print(str(caught[0].message).partition(":")[0])
    none of the 20 users of the user table has a rating
    """


class UnlikelyFavourites(UnlikelyData):
    """Fewer than 1% or more than 95% of the ratings are favourites.

    Examples
    --------
    >>> import warnings
    >>> from coldhash import Dataset
    >>> table = {"user_id": [*range(200)], "item_id": ["a", "b"] * 100, "rating": [1, 2] * 100}
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", UnlikelyFavourites)
    ...     data = Dataset.from_tables(table, scale=(1, 5))
    >>> caught[0].category.__name__  # nothing is rated above 3 of 5
    'UnlikelyFavourites'
    """


class UnknownColumns(UserWarning):
    """A table of people has columns that the model does not know.

    Examples
    --------
    >>> import warnings
    >>> import pyarrow as pa
    >>> from coldhash import MFDCF, read
    >>> model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", UnknownColumns)
    ...     answer = model.recommend(pa.table({"age": [30], "gendr": ["female"]}))
    >>> print(caught[0].message)
    the model does not know 'gendr' (did you mean gender?); hint: unknown='ignore'
    """


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise an error if an argument is none of its choices."""
    if value not in choices:
        raise SettingError(f"{name}={value!r}", hint=f"one of {', '.join(choices)}")


def check_positive(name: str, value: int) -> None:
    """Raise an error if an argument is not a whole number, or is below 1."""
    if not hasattr(value, "__index__") or value < 1:
        raise SettingError(f"{name}={value!r}", hint="a whole number, at least 1")


def check_types(settings: object) -> None:
    """Raise an error for a value outside its declared type or range, and for NaN and huge ones."""
    from pydantic import ValidationError

    method = type(settings)
    for name, adapter in _adapters(method).items():  # type: ignore[arg-type]  # it is hashable
        value = getattr(settings, name)
        try:
            adapter.validate_python(value)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise SettingError(f"{method.__name__}: {name}={value!r:.80}", hint=why) from None
        if isinstance(value, int | float) and abs(value) > MAX_SETTING:
            message = f"{method.__name__}: {name}={value!r:.80}"
            raise SettingError(message, hint=f"up to {MAX_SETTING:g}")


@cache
def _adapters(method: type) -> dict[str, TypeAdapter[object]]:
    from pydantic import ConfigDict, TypeAdapter

    strict = ConfigDict(strict=True, allow_inf_nan=False)
    kinds = get_type_hints(method, include_extras=True)  # with the ranges of `Annotated` types
    return {name: TypeAdapter(kind, config=strict) for name, kind in kinds.items()}


def import_extra(name: str, extra: str) -> ModuleType:
    """Import a library that an extra of this package installs."""
    try:
        return import_module(name)
    except ImportError as error:
        hint = f"pip install 'coldhash[{extra}]'"
        missing = error.name or name  # it may need another one
        raise SettingError(f"{missing} is not installed", hint=hint) from error
