"""Dates as numbers; apart from the plan, which a model does without when it serves."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

from coldhash.errors import DataError

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
