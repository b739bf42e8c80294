"""Dates as numbers; apart from the plan, which a model does without when it serves."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from typing import Any

from coldhash.errors import DataError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_SECOND = 30_000_000  # smaller numbers are dates such as 20240131; this is in 1970
_LAST_SECOND = 1e11  # larger numbers are of smaller units; this is in the year 5138


def as_days(value: Any) -> float:
    """Return a date as days since 1970, NaN if it is missing; a moment without a zone is UTC."""
    if value is None or value == "" or value != value:
        return math.nan
    try:
        if isinstance(value, str) and not value.strip().isdecimal():
            value = datetime.fromisoformat(value.strip())
        if isinstance(value, datetime):
            return (value.replace(tzinfo=value.tzinfo or UTC) - EPOCH) / timedelta(days=1)
        if isinstance(value, date):
            return float((value - EPOCH.date()).days)
        number = int(value)
        if number < _FIRST_SECOND:
            return as_days(date(number // 10_000, number // 100 % 100, number % 100))
        unit = next(unit for unit in (1, 1e3, 1e6, 1e9) if number / unit < _LAST_SECOND)
        return number / unit / 86_400
    except (TypeError, ValueError, OverflowError, StopIteration):
        hint = "such as 2024-01-31, 2024-01-31T12:00:00Z, 20240131 or seconds since 1970"
        raise DataError("not a date", hint=hint) from None
