"""Names of columns: each once, and which one plays which role."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from coldhash.errors import ColumnError

ALIASES = {
    "user_id": ("user_id", "user", "userID", "userId"),
    "item_id": ("item_id", "item", "itemID", "itemId", "movieId"),
    "rating": ("rating", "weight"),
    "timestamp": ("timestamp", "datetime"),
}


def no_twins(names: list[str], title: str) -> None:
    """Two columns of one name are an error."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ColumnError(f"{title}: column {twice[0]!r} is there twice", hint="rename one")


def find_column(
    names: list[str], role: str, columns: Mapping[str, str | None], title: str
) -> str | None:
    """Find the column that plays a role: as mapped (to None: none), or under a usual name."""
    if role in columns:
        mapped = columns[role]
        if mapped is not None and mapped not in names:
            raise ColumnError(
                f"{title} has no column {mapped!r}", hint=f"it has: {', '.join(map(repr, names))}"
            )
        return mapped
    found = [name for name in ALIASES[role] if name in names]
    if len(found) > 1:
        raise ColumnError(
            f"{title} has {' and '.join(map(repr, found))} for {role}",
            hint=f"say which: columns={{{role!r}: {found[0]!r}}}",
        )
    return found[0] if found else None


def need_column(
    names: list[str],
    role: str,
    columns: Mapping[str, str | None],
    title: str,
    hint: str | None = None,
) -> str:
    """Find the column that plays a role; that there is none is an error."""
    found = find_column(names, role, columns, title)
    if found is None:
        raise ColumnError(
            f"{title} has no column for {role}: it has {', '.join(map(repr, names)) or 'none'}",
            hint=hint
            or f"columns={{{role!r}: NAME}}; "
            f"for a file without a header line TableFile(path=..., names=[...])",
        )
    return found
