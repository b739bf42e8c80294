"""How settings are made from what somebody wrote, and how they are checked."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from coldhash.errors import SettingError

LARGEST = 1e12  # of a number: the squares of larger ones leave single precision

Settings = TypeVar("Settings")


def settings_from(form: type[Settings], values: Mapping[str, Any]) -> Settings:
    """Make settings from JSON or TOML, where lists stand for tuples; names must be known."""
    kinds = get_type_hints(form)
    for name in values:
        if name not in kinds:
            raise SettingError(f"no setting is called {name!r}", hint=", ".join(sorted(kinds)))
    return form(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})


def check_types(settings: Any) -> None:
    """Raise an error for a value outside its declared type or range, and for NaN and huge ones."""
    form: Any = type(settings)
    for name, adapter in _adapters(form).items():
        value = getattr(settings, name)
        try:
            adapter.validate_python(value)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise SettingError(f"{form.__name__}: {name}={value!r:.80}", hint=why) from None
        if isinstance(value, int | float) and abs(value) > LARGEST:
            raise SettingError(f"{form.__name__}: {name}={value!r:.80}", hint=f"up to {LARGEST:g}")


@cache
def _adapters(form: type[Any]) -> dict[str, TypeAdapter[Any]]:
    strict = ConfigDict(strict=True, allow_inf_nan=False)
    kinds = get_type_hints(form, include_extras=True)  # with the ranges of `Annotated` types
    return {name: TypeAdapter(kind, config=strict) for name, kind in kinds.items()}


def check_settings(settings: Any, **checks: tuple[bool, str]) -> None:
    """Name the first setting that does not hold, with its value and what it may be."""
    for name, (holds, hint) in checks.items():
        if not holds:
            value = getattr(settings, name)
            raise SettingError(f"{type(settings).__name__}: {name}={value!r}", hint=hint)
