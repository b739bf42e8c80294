"""The settings of methods: how they are made from JSON or TOML, and how they are checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeVar, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from coldhash.errors import SettingError

Callback = Callable[[int, float], None]  # called with the round, from 0, and the objective after it

_MAX_NUMBER = 1e12  # the squares of larger ones leave single precision

Settings = TypeVar("Settings")


def settings_from(method: type[Settings], values: Mapping[str, object]) -> Settings:
    """Make the settings of a method from JSON or TOML, where lists stand for tuples.

    Raises SettingError for a name that the method does not have.
    """
    names = get_type_hints(method)
    for name in values:
        if name not in names:
            raise SettingError(f"no setting is called {name!r}", hint=", ".join(sorted(names)))
    return method(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})


def check_types(settings: object) -> None:
    """Raise an error for a value outside its declared type or range, and for NaN and huge ones."""
    method = type(settings).__name__
    adapters = _adapters(type(settings))  # type: ignore[arg-type]  # a type is hashable
    for name, adapter in adapters.items():
        value = getattr(settings, name)
        try:
            adapter.validate_python(value)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise SettingError(f"{method}: {name}={value!r:.80}", hint=why) from None
        if isinstance(value, int | float) and abs(value) > _MAX_NUMBER:
            raise SettingError(f"{method}: {name}={value!r:.80}", hint=f"up to {_MAX_NUMBER:g}")


@cache
def _adapters(method: type) -> dict[str, TypeAdapter[object]]:
    strict = ConfigDict(strict=True, allow_inf_nan=False)
    kinds = get_type_hints(method, include_extras=True)  # with the ranges of `Annotated` types
    return {name: TypeAdapter(kind, config=strict) for name, kind in kinds.items()}
