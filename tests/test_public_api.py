"""The public surface, pinned: a change here is a change for users."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import coldhash

PUBLIC = [
    "Dataset",
    "FeatureEncoder",
    "FeaturePlan",
    "Features",
    "Ids",
    "MFDCF",
    "MODELS",
    "Ratings",
    "Recommendations",
    "Recommender",
    "TableFile",
    "cold_user_splits",
    "fit_features",
    "load",
    "read",
    "split_by_time",
    "split_cold_items",
    "split_cold_users",
    "split_first_ratings",
]


def test_public_names():
    assert sorted(coldhash.__all__) == PUBLIC
    assert sorted(coldhash._HOME) == PUBLIC
    for name in PUBLIC:
        assert getattr(coldhash, name).__doc__
    assert set(PUBLIC) <= set(dir(coldhash))


METHODS = "mfdcf cbfknn dfm ddl zsr lsh itq bccf ch pph dcf dcmf mf popularity ridge".split()


def test_every_method_is_in_the_table():
    assert list(coldhash.MODELS) == METHODS
    assert {form.__name__.lower() for form in coldhash.MODELS.values()} == set(METHODS)
    assert coldhash.MODELS["mfdcf"] is coldhash.MFDCF
    with pytest.raises(KeyError, match="no-such-method"):
        coldhash.MODELS["no-such-method"]


def test_a_method_is_imported_when_it_is_asked_for():
    code = "import sys, coldhash; coldhash.MODELS['ridge']; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    loaded = set(run.stdout.split())
    assert "coldhash.baselines.ridge" in loaded
    assert not loaded & {f"coldhash.baselines.{name}" for name in METHODS if name != "ridge"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        coldhash.nothing_of_the_kind  # noqa: B018


def modules_with_examples() -> list[str]:
    package = Path(coldhash.__file__).parent
    files = [file for file in package.rglob("*.py") if ">>> " in file.read_text(encoding="utf-8")]
    parts = [file.relative_to(package.parent).with_suffix("").parts for file in files]
    return sorted(".".join(part).removesuffix(".__init__") for part in parts)


@pytest.mark.slow
@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
