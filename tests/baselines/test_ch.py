"""CH: the space of the main singular vectors, and codes planted in it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

import contract
from coldhash import Dataset, read
from coldhash.arrays.codes import signs
from coldhash.baselines.itq import CH, orthogonalise
from coldhash.errors import SettingError


@pytest.fixture(scope="module")
def small():
    return read("sample", n_users=240, n_items=90)


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_contract(check, small):
    check(CH(n_bits=8), small)


def planted(rng: np.random.Generator, n_users: int = 300, n_items: int = 200):
    """Users rate items by how many of 8 bits agree; gives the world and the items' codes."""
    B, D = (signs(rng.standard_normal((size, 8)), np.float64) for size in (n_users, n_items))
    ratings = 2.5 + 2.5 * (B @ D.T) / 8
    users, items = np.indices(ratings.shape).reshape(2, -1)
    data = Dataset.from_tables(
        {"user_id": users, "item_id": items, "rating": ratings.ravel()},
        {"user_id": np.arange(n_users), "first": (B[:, 0] > 0).astype(int).astype(str)},
        {"item_id": np.arange(n_items)},
        scale=(0.0, 5.0),
        name="planted",
    )
    return data, D


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_planted_neighbours_are_found(rng):
    """Of 9 bits, 8 are the planted ones and one is what all ratings have in common.

    About every second start of the rotation ends with one bit wrong, so the best of ten is taken.
    """
    data, D = planted(rng)
    pairs = np.triu_indices(len(D), 1)
    codes = [CH(n_bits=9).fit(data, seed).items.rows().astype(np.float64) for seed in range(10)]
    alike = [spearmanr((C @ C.T)[pairs], (D @ D.T)[pairs]).statistic for C in codes]
    assert max(alike) >= 0.9


def test_frames_are_orthogonal(rng):
    U = orthogonalise(rng.standard_normal((50, 7)))
    np.testing.assert_allclose(U.T @ U, 50 * np.eye(7), atol=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_the_objective_falls_to_the_main_singular_values(small):
    model = CH(n_bits=6, n_rounds=500).fit(small)
    objective = np.array(model.report["objective"])
    assert (np.diff(objective) <= 1e-9 * abs(objective[0])).all()
    S = small.ratings.matrix.toarray() / 5
    best = np.sqrt(np.prod(S.shape)) * np.linalg.svd(S)[1][:6].sum()
    np.testing.assert_allclose(-objective[-1], best, rtol=1e-3)


@pytest.mark.parametrize(
    "settings",
    [{"n_bits": 0}, {"n_rounds": 0}, {"map_ridge": 0}],
    ids=str,
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(SettingError, match="CH"):
        CH(**settings)
