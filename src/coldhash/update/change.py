"""Change: what became of a model."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Source = Literal["ratings", "content", "average"]  # what a new item's code was made from


@dataclass(frozen=True)
class Change:
    """What a change of the catalogue or of the users did.

    Examples
    --------
    >>> print(Change(items_added={"new": "content"}, users_changed=["ann"]))
    1 items added (1 by content)
    1 users changed
    """

    items_added: dict[str, Source] = field(default_factory=dict)  # id -> where its code is from
    items_removed: list[str] = field(default_factory=list)
    items_changed: int = 0  # items that were there before and have another code now
    bits_changed: int = 0  # in those codes
    users_added: list[str] = field(default_factory=list)
    users_changed: list[str] = field(default_factory=list)
    users_removed: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Give everything as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        made = list(self.items_added.values())
        sources = ", ".join(
            f"{made.count(source)} by {source}" for source in dict.fromkeys(sorted(made))
        )
        lines = {
            f"items added ({sources})": len(made),
            "items removed": len(self.items_removed),
            f"items with another code ({self.bits_changed:,} bits)": self.items_changed,
            "users added": len(self.users_added),
            "users changed": len(self.users_changed),
            "users removed": len(self.users_removed),
        }
        return "\n".join(f"{n:,} {what}" for what, n in lines.items() if n) or "nothing changed"
