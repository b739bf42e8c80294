"""Forms that people write in TOML: how they are read, and how a mistake in one is told."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from coldhash.errors import SettingError

Form = TypeVar("Form", bound=BaseModel)


def read_toml(form: type[Form], path: str | Path) -> Form:
    """Read a form from a file; what is wrong is told with the file and the place in it."""
    try:
        return form(**tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise SettingError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: not TOML: {error}") from None
    except SettingError as error:
        raise SettingError(f"{path}: {error.message}", hint=error.hint) from None


def mistake(what: str, error: ValidationError, hint: str | None = None) -> SettingError:
    """Name the first part of a form that does not hold."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    why = first["msg"].removeprefix("Value error, ")
    return SettingError(f"{what}, {place}: {why}" if place else f"{what}: {why}", hint=hint)
