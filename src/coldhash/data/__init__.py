"""Files and frames -> ratings and tables."""

from typing import Protocol


class ArrowTable(Protocol):
    """A table that Arrow can read: of pandas, polars, pyarrow and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as a stream of Arrow's C data interface."""


class LazyTable(Protocol):
    """A table that is computed when it is needed, such as a LazyFrame of polars."""

    def collect(self) -> ArrowTable:
        """Compute the table."""
