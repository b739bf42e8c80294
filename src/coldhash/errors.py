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

An error names the thing and, after `hint:`, the way out. One warning stands beside them:
`CodeCollapse`, people who differ got the same code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class ColdhashError(Exception):
    """The root: catch this to catch everything the library raises on purpose."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; hint: {self.hint}" if self.hint else self.message


class SettingError(ColdhashError, ValueError):
    """An argument, option or feature plan asks for something impossible."""


class DataError(ColdhashError, ValueError):
    """Ratings or tables hold something that cannot be right."""


class TableError(DataError):
    """A file holds something that cannot be read; says in which line and column."""

    def __init__(
        self,
        message: str,
        *,
        file: str,
        line: int | None = None,
        column: str | None = None,
        hint: str | None = None,
    ) -> None:
        place = file
        if line is not None:
            place += f", line {line}"
        if column is not None:
            place += f", column {column!r}"
        super().__init__(f"{place}: {message}", hint=hint)
        self.file = file
        self.line = line
        self.column = column


class ColumnError(DataError):
    """A column that is needed is not there, or is there twice."""


class UnknownId(ColdhashError, KeyError):
    """An id that this data or model has never seen."""


class ModelFileError(ColdhashError, ValueError):
    """A file that is not a model file, or not one that this version can read."""


class WorkerError(ColdhashError, RuntimeError):
    """The workers of a cluster died, or are out of memory."""


class SourceError(ColdhashError, OSError):
    """A file, archive or download is missing or unusable."""


class ChecksumError(SourceError):
    """The bytes of a file are not the ones that were promised."""


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Tell what keeps a file from being written: a full disk, a read-only place, missing rights."""
    try:
        yield
    except ColdhashError:
        raise
    except OSError as error:
        raise SourceError(
            f"cannot write {path}: {reason_of(error)}", hint="make room, or name another folder"
        ) from error


def reason_of(error: OSError) -> str:
    """Say in the system's words why something could not be read or written."""
    return os.strerror(error.errno) if error.errno else error.strerror or str(error)


class CodeCollapse(UserWarning):
    """People who differ got the same code."""
