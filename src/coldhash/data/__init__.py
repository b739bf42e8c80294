"""Files and frames -> ratings and tables; what columns mean, their usual names, and dates.

These are apart from the modules, most of which a model does without when it serves.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any, Protocol

from coldhash.errors import DataError

_COUNTS = "count counts quantity qty plays play_count purchases clicks views"
_USUAL = {  # what a column may mean, and the usual names of such a column, the best one first
    "user_id": "user_id user userID userId customer_id client_id household_id visitor_id member_id "
    "id reviewerID",
    "item_id": "item_id item itemID itemId movieId product_id article_id movie_id track_id book_id "
    "joke_id id sku asin isbn ISBN",
    "rating": f"rating weight {_COUNTS} score stars",
    "timestamp": "timestamp datetime event_time event_timestamp transaction_timestamp created_at "
    "purchased_at unixReviewTime ts date time",
    "event": "event event_type type action behavior",
}
ROLES = {role: tuple(names.split()) for role, names in _USUAL.items()}
COUNT_NAMES = tuple(_COUNTS.split())
TITLE = "title"  # the role of the item column that answers show
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_SECOND = 30_000_000  # smaller numbers are dates such as 20240131; this is in 1970
_LAST_SECOND = 1e11  # larger numbers are of smaller units; this is in the year 5138
_NAMES = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTHS = {name: at for at, name in enumerate(_NAMES, 1)}
_YEAR_FIRST = re.compile(r"(?P<year>\d{4})[-/.](?P<month>\d\d?)[-/.](?P<day>\d\d?)(?!\d)")
_DAY_FIRST = re.compile(
    r"(?P<day>\d\d?)([- ](?P<name>[a-z]{3})[a-z]*[- ]|\.(?P<month>\d\d?)\.)(?P<year>\d{4})(?!\d)",
    re.I,
)
_LIKE_A_DATE = re.compile(
    r"\d{4}[-/.]\d\d?[-/.]\d\d?(?!\d)|\d\d?[-/. ](\d\d?|[a-z]{3,9})[-/. ]\d{4}(?!\d)", re.I
)


class ArrowTable(Protocol):
    """A table that Arrow can read: of pandas, polars, pyarrow and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as a stream of Arrow's C data interface."""


class LazyTable(Protocol):
    """A table that is computed when it is needed, such as a LazyFrame of polars."""

    def collect(self) -> ArrowTable:
        """Compute the table."""


def looks_like_date(text: str) -> bool:
    """Return whether a text begins like a date, also one that is not clear, such as 03/04/2024."""
    return _LIKE_A_DATE.match(text.strip()) is not None


def as_days(value: Any) -> float:
    """Return a date as days since 1970, NaN if it is missing; a moment without a zone is UTC."""
    if value is None or value == "" or value != value:
        return math.nan
    try:
        if isinstance(value, str) and not value.strip().isdecimal():
            value = datetime.fromisoformat(_as_iso(value.strip()))
        if isinstance(value, datetime):
            return (value.replace(tzinfo=value.tzinfo or UTC) - EPOCH) / timedelta(days=1)
        if isinstance(value, date):
            return float((value - EPOCH.date()).days)
        number = int(value)
        if number < _FIRST_SECOND:
            return as_days(date(number // 10_000, number // 100 % 100, number % 100))
        unit = next(unit for unit in (1, 1e3, 1e6, 1e9) if number / unit < _LAST_SECOND)
        return number / unit / 86_400
    except (TypeError, ValueError, KeyError, OverflowError, StopIteration):
        raise DataError("not a date", hint="2024-01-31, 31-Jan-2024, seconds since 1970") from None


def _as_iso(text: str) -> str:
    """Write 2024/1/31, 31.1.2024 and 31-Jan-2024 as 2024-01-31; 3/4/2024 is not clear."""
    found = _YEAR_FIRST.match(text) or _DAY_FIRST.match(text)
    if found is None:
        return text
    parts = found.groupdict()
    month = int(parts["month"]) if parts["month"] else _MONTHS[parts["name"].lower()]
    return f"{parts['year']}-{month:02}-{int(parts['day']):02}{text[found.end() :]}"
