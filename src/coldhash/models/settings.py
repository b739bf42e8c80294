"""How settings are checked: once, when they are made."""

from __future__ import annotations

from typing import Any

from coldhash.errors import SettingError


def check_settings(settings: Any, **checks: tuple[bool, str]) -> None:
    """Name the first setting that does not hold, with its value and what it may be."""
    for name, (holds, hint) in checks.items():
        if not holds:
            value = getattr(settings, name)
            raise SettingError(f"{type(settings).__name__}: {name}={value!r}", hint=hint)
