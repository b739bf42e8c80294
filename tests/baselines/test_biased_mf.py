"""Biased MF: the objective falls, planted ratings are fitted, biases are scored."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

import contract
from coldhash import Dataset, read
from coldhash.baselines.biased_mf import BiasedMF, half
from coldhash.errors import SettingError


@pytest.fixture(scope="module")
def small():
    return read("sample", n_users=240, n_items=90)


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_contract(check, small):
    check(BiasedMF(n_factors=4, n_rounds=5), small)


def test_the_objective_never_rises(small):
    objective = np.array(BiasedMF(n_factors=4).fit(small).report["objective"])
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()


def test_users_have_a_one_for_the_bias(small):
    model = BiasedMF(n_factors=4).fit(small)
    assert (model.user_vectors[:, -1] == 1).all()
    np.testing.assert_allclose(model.encode(contract.PEOPLE[1:4]).vectors[:, -1], 1, atol=1e-3)


def test_what_everybody_likes_comes_first(rng):
    """Where ratings are biases alone, strangers get the items in the order of these."""
    bias = rng.permutation(np.linspace(1, 5, 20))
    users, items = np.indices((40, 20)).reshape(2, -1)
    data = Dataset.from_tables(
        {"user_id": users, "item_id": items, "rating": bias[items]},
        {"user_id": np.arange(40), "parity": [str(u % 2) for u in range(40)]},
        {"item_id": np.arange(20)},
        scale=(0.0, 5.0),
        name="biases",
    )
    model = BiasedMF(n_factors=2, ridge=1e-3).fit(data)
    scores = model.score(model.encode({"parity": "1"}))[0]
    assert np.argsort(scores).tolist() == np.argsort(bias).tolist()


def test_a_half_step_solves_every_row(rng):
    T = csr_array(random_array((12, 9), density=0.3, rng=rng))
    Q = rng.standard_normal((9, 4))
    for u, found in enumerate(half(T, Q, 0.1)):
        own = slice(T.indptr[u], T.indptr[u + 1])
        items = T.indices[own]
        A = np.column_stack([Q[items, :-1], np.ones(len(items))])
        gram = A.T @ A + 0.1 * len(items) * np.eye(4)
        expected = np.linalg.pinv(gram) @ A.T @ (T.data[own] - Q[items, -1])
        np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize(
    "settings", [{"n_factors": 0}, {"n_rounds": 0}, {"ridge": 0}, {"map_ridge": 0}], ids=str
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(SettingError, match="BiasedMF"):
        BiasedMF(**settings)
