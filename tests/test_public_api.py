"""The public surface, pinned: a change here is a change for users."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import optuna
import pytest
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, csr_matrix, sparray, spmatrix
from starlette.types import ASGIApp

import coldhash
from coldhash.mfdcf.model import Callback

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
    assert "coldhash.baselines.controls" in loaded
    assert not loaded & {f"coldhash.baselines.{name}" for name in METHODS}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        coldhash.nothing_of_the_kind  # noqa: B018


REFERENCE = Path(__file__).parents[1] / "docs" / "reference.md"
FRAMES = SimpleNamespace(DataFrame=object, Series=object)
# what modules import for type checkers alone
CHECKED_ONLY = {"pandas": FRAMES, "polars": FRAMES, "Client": object, "Figure": object}
CHECKED_ONLY |= {"Dataset": coldhash.Dataset, "Recommender": coldhash.Recommender}
CHECKED_ONLY["optuna"] = optuna
CHECKED_ONLY |= {"Callback": Callback, "ArrayLike": ArrayLike, "csr_array": csr_array}
CHECKED_ONLY |= {"csr_matrix": csr_matrix, "sparray": sparray, "spmatrix": spmatrix}
NOT_OURS = (ArrayLike, ASGIApp)
LOGGED = {"Results: rows", "Results.__init__: rows"}  # lines of JSON, whatever a run logged


def documented_names() -> list[tuple[str, str]]:
    """Module and name of everything that the reference lists."""
    rows = re.findall(
        r"^\| `(coldhash[\w.]*)` \| (.*?) \|", REFERENCE.read_text(encoding="utf-8"), re.M
    )
    return [(module, name) for module, names in rows for name in re.findall(r"`(\w+)`", names)]


def signatures(public: object) -> Iterator[object]:
    """Everything with annotations: a function, or a class with its methods and properties."""
    if inspect.isfunction(public) or inspect.isclass(public):  # not a table
        yield public
    for base in inspect.getmro(public) if inspect.isclass(public) else ():
        for name, member in vars(base).items():
            member = getattr(member, "fget", None) or getattr(member, "func", member)
            member = inspect.unwrap(getattr(member, "__func__", member))
            written = str(getattr(member, "__module__", "")).startswith("coldhash.")
            if inspect.isfunction(member) and written and not re.match("_[^_]", name):
                yield member


def contains_any(kind: object) -> bool:
    if isinstance(kind, list):  # the parameters of a Callable
        return any(map(contains_any, kind))
    if kind in NOT_OURS:
        return False
    return kind is typing.Any or any(map(contains_any, typing.get_args(kind)))


@pytest.mark.parametrize("place", documented_names(), ids=".".join)
def test_no_public_signature_has_any(place):
    module, name = place
    public = getattr(importlib.import_module(module), name)
    loose = {
        f"{annotated.__qualname__}: {key}"
        for annotated in signatures(public)
        for key, kind in typing.get_type_hints(annotated, localns=CHECKED_ONLY).items()
        if contains_any(kind)
    }
    assert not loose - LOGGED


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
