"""The public surface, pinned: a change here is a change for users."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import coldhash

PUBLIC = [
    "Dataset",
    "FeatureEncoder",
    "FeaturePlan",
    "Features",
    "Ids",
    "MFDCF",
    "Ratings",
    "Recommendations",
    "Recommender",
    "TableFile",
    "cold_user_splits",
    "fit_features",
    "load",
    "read",
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


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        coldhash.nothing_of_the_kind  # noqa: B018


def test_examples_in_docstrings_run():
    attempted = 0
    for module in pkgutil.walk_packages(coldhash.__path__, "coldhash."):
        if module.name == "coldhash.__main__":
            continue
        result = doctest.testmod(importlib.import_module(module.name))
        assert result.failed == 0, module.name
        attempted += result.attempted
    assert attempted > 0
