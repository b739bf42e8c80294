"""Settings of all methods refuse what is not of their type, not finite, or huge."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

from coldhash.errors import SettingError
from coldhash.registry import MODELS

EVERY = [(form, field.name) for form in MODELS.values() for field in fields(form)]


@pytest.mark.parametrize(("form", "name"), EVERY, ids=lambda one: getattr(one, "__name__", one))
def test_every_setting_of_every_method_checks_its_type(form, name):
    kind = get_type_hints(form)[name]
    kinds = set(get_args(kind)) | {kind}
    wrong = [math.nan, math.inf, -math.inf, 1e300, [1], object()]
    wrong += [True] if bool not in kinds else ["yes"]
    wrong += [None] if type(None) not in kinds else []
    wrong += ["3"] if str not in kinds else [3]
    wrong += [2.5] if float not in kinds else []
    for value in wrong:
        with pytest.raises(SettingError, match=f"{form.__name__}: .*{name}="):
            form(**{name: value})


@pytest.mark.parametrize("form", MODELS.values(), ids=lambda form: form.__name__)
def test_the_defaults_are_right(form):
    assert form() == form()
