"""Every model keeps the contract."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import contract
import worlds
from coldhash import MFDCF, MODELS, read
from coldhash.baselines.controls import Popularity
from coldhash.lab.printed import PrintedMFDCF


def has_own_test(name: str) -> bool:
    """Whether a test file of the method checks the contract, with settings that suit it."""
    file = Path(__file__).parent / "baselines" / f"test_{name}.py"
    return file.exists() and "contract.CHECKS" in file.read_text(encoding="utf-8")


SETTINGS = {name: MODELS[name]() for name in MODELS if not has_own_test(name)} | {
    "mfdcf, 16 bits": MFDCF(n_bits=16),
    "mfdcf, as printed": PrintedMFDCF(
        n_bits=16,
        target="share",
        popularity_power=0,
        stranger_weight=0,
        cold_rotation=True,
        ridge=1e-2,
    ),
    "popularity by cell": Popularity(cell=("gender", "occupation")),
}


@pytest.fixture(scope="module")
def small():
    return read("sample", n_users=240, n_items=90)


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", SETTINGS)
def test_contract(name, check, small):
    check(SETTINGS[name], small)


@pytest.mark.parametrize("name", ["mfdcf", "mf", "ridge", "popularity by cell"])
def test_a_checkerboard_is_learned(name):
    """Strangers of known parity are given the items of their own colour first."""
    settings = SETTINGS[name]
    if name == "popularity by cell":
        settings = Popularity(cell=("parity",))
    model = settings.fit(worlds.checkerboard(), seed=0)
    for parity, own in (("even", 0), ("odd", 1)):
        scores = model.score(model.encode({"parity": parity}))[0]
        assert scores[own::2].min() > scores[1 - own :: 2].max()


def test_these_have_no_test_of_their_own():
    assert {"mfdcf", "mf", "popularity", "ridge"} <= set(SETTINGS)
    assert "dcf" not in SETTINGS


def test_settings_cannot_recommend():
    with pytest.raises(ValueError, match=r"\.fit\(data\)"):
        MFDCF().recommend({"age": 3})


def test_popularity_counts_favourites(small):
    model = Popularity().fit(small)
    dense = small.ratings.matrix.toarray()
    np.testing.assert_array_equal(model.popularity, (dense >= 4).sum(axis=0))
