"""DCF: what is planted is found, the objective falls, and strangers come by the map."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import spearmanr

import contract
import worlds
from coldhash import Dataset, read
from coldhash.arrays.codes import signs
from coldhash.baselines.dcf import DCF
from coldhash.errors import DataError, SettingError

pytestmark = pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")


def planted(rng, n_users=150, n_items=60, n_bits=8) -> tuple[Dataset, np.ndarray]:
    """Ratings are what planted codes say, three in five of them known; gives the items' codes."""
    B, D = (signs(rng.normal(size=(n, n_bits))).astype(int) for n in (n_users, n_items))
    users, items = np.nonzero(rng.random((n_users, n_items)) < 0.6)
    agreement = np.sum(B[users] * D[items], axis=1)
    data = Dataset.from_tables(
        {"user_id": users, "item_id": items, "rating": 3 + 2 * agreement / n_bits},
        {"user_id": np.arange(n_users)} | {f"bit {k}": B[:, k].astype(str) for k in range(3)},
        {"item_id": np.arange(n_items)},
        scale=(1.0, 5.0),
        name="planted",
    )
    return data, D


def likeness(model, D) -> float:
    """Rank correlation of how alike items are: by code, and as planted."""
    pairs = np.triu_indices(len(D), k=1)
    found = model.items.rows(model.item_ids.rows(np.arange(len(D)))).astype(int)
    return spearmanr((found @ found.T)[pairs], (D @ D.T)[pairs]).statistic


@pytest.fixture(scope="module")
def small():
    return read("sample", n_users=240, n_items=90)


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_contract(check, small):
    check(DCF(n_bits=16), small)


@pytest.mark.slow
def test_planted_neighbours_are_found(rng):
    """From most starts; a start may end in a local minimum, which the objective shows."""
    data, D = planted(rng)
    settings = DCF(n_bits=8, n_relaxed=10, balance_weight=0.01)  # so few ratings need little
    models = [settings.fit(data, seed=seed) for seed in range(5)]
    best = min(models, key=lambda model: model.report["objective"][-1])
    assert likeness(best, D) >= 0.99
    assert np.median([likeness(model, D) for model in models]) >= 0.9


@pytest.mark.parametrize("balance_weight", [0.0, 0.01, 10.0])
def test_the_objective_never_rises(small, balance_weight):
    model = DCF(n_bits=16, balance_weight=balance_weight, n_rounds=20).fit(small)
    objective = model.report["objective"]
    assert all(after <= before + 1e-9 * abs(before) for before, after in pairwise(objective))
    assert objective[-1] < objective[0]


def test_strangers_come_by_a_map_that_the_name_admits():
    data = worlds.checkerboard()
    model = DCF(n_bits=4, map_ridge=0.1).fit(data)
    assert model.name == "dcf+map"
    encoded = model.encode([{"parity": "even"}, {"parity": "odd"}])
    assert encoded.vectors.shape == (2, 4)
    assert not encoded.fallback.any()


def test_ratings_that_are_all_equal():
    same = Dataset.from_tables(
        {
            "user_id": np.repeat(np.arange(30), 10),
            "item_id": (np.arange(300) * 7) % 40,
            "rating": np.full(300, 4.0),
        },
        {"user_id": np.arange(30), "parity": ["even", "odd"] * 15},
        {"item_id": np.arange(40)},
        duplicates="last",
    )
    model = DCF(n_bits=4).fit(same)
    assert np.isfinite(model.score(model.encode({"parity": "odd"}))).all()


def test_too_few_items_for_the_bits():
    data = worlds.checkerboard()
    with pytest.raises(SettingError, match="no balance"):
        DCF(n_bits=32).fit(data)
    DCF(n_bits=32, balance_weight=0).fit(data)


def test_no_ratings(small):
    nothing = small.with_ratings(small.ratings.where(small.ratings.matrix.data < 0))
    with pytest.raises(DataError, match="no ratings"):
        DCF(n_bits=8).fit(nothing)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_bits": 0},
        {"balance_weight": -1},
        {"n_rounds": 0},
        {"n_relaxed": 0},
        {"ridge": 0},
        {"map_ridge": 0},
    ],
)
def test_settings_are_checked(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        DCF(**wrong)
