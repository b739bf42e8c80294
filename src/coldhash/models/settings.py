"""How settings are made from what somebody wrote, and how they are checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

from coldhash.errors import SettingError

Settings = TypeVar("Settings")


def settings_from(form: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Make settings from JSON or TOML, where lists stand for tuples.

    An unknown name and a value of another type are errors; how large numbers may be, the settings
    know themselves.
    """
    from pydantic import ConfigDict, TypeAdapter, ValidationError  # slow to import

    kinds, strict = get_type_hints(form), ConfigDict(strict=True, allow_inf_nan=False)
    right: dict[str, Any] = {}
    for name, value in values.items():
        if name not in kinds:
            raise SettingError(f"no setting is called {name!r}", hint=", ".join(sorted(kinds)))
        right[name] = tuple(value) if isinstance(value, list) else value
        try:
            TypeAdapter(kinds[name], config=strict).validate_python(right[name])
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise SettingError(f"{form.__name__}: {name}={value!r:.80}", hint=why) from None
    return form(**right)


def check_settings(settings: Any, **checks: tuple[bool, str]) -> None:
    """Name the first setting that does not hold, with its value and what it may be."""
    for name, (holds, hint) in checks.items():
        if not holds:
            value = getattr(settings, name)
            raise SettingError(f"{type(settings).__name__}: {name}={value!r}", hint=hint)
