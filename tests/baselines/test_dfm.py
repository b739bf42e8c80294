"""DFM: blocks of codes never make it worse, and the bias of items ranks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

import contract
from coldhash import read, split_cold_users
from coldhash.arrays.codes import signs
from coldhash.baselines import dfm
from coldhash.baselines.dfm import DFM, fit_biases, flip_feature_bits
from coldhash.errors import SettingError
from coldhash.evaluate.metrics import accuracy_at
from coldhash.evaluate.protocol import make_trial, rank


@pytest.fixture(scope="module")
def small():
    return read("sample", n_users=240, n_items=90)


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_contract(check, small):
    check(DFM(n_bits=16, n_rounds=2), small)


@pytest.mark.parametrize("balance_weight", [0.0, 10.0])
def test_the_objective_never_rises(small, balance_weight):
    settings = DFM(n_bits=16, balance_weight=balance_weight, n_rounds=5)
    objective = settings.fit(small).report["objective"]
    assert all(after <= before + 1e-9 * abs(before) for before, after in pairwise(objective))
    assert objective[-1] < objective[0]


def problem(rng):
    """Known entries, users with one-hot and real features, codes of features and items."""
    S = csr_array(random_array((40, 15), density=0.4, rng=rng, dtype=np.float64))
    S.data[:] = rng.normal(scale=5, size=S.nnz)
    X = np.hstack([np.eye(3)[rng.integers(3, size=40)], rng.random((40, 2)), np.ones((40, 1))]) / 3
    A, c = (signs(rng.normal(size=(n, 6)), np.float64) for n in (6, 15))
    return S, X, A, c, rng.normal(size=(6, 6))


def energy(S, X, A, c, pull):
    known = S.toarray() != 0
    return np.sum(np.where(known, S.toarray() - X @ A @ c.T, 0) ** 2) - 2 * np.sum(A * pull)


def test_codes_of_features_end_where_no_single_flip_helps(rng):
    S, X, A, c, pull = problem(rng)
    energies = [energy(S, X, A, c, pull)]
    for _ in range(20):
        A = flip_feature_bits(S, X, A, c, pull)
        energies.append(energy(S, X, A, c, pull))
    assert all(after <= before + 1e-9 * abs(before) for before, after in pairwise(energies))
    for at in np.ndindex(A.shape):
        flipped = A.copy()
        flipped[at] *= -1
        assert energy(S, X, flipped, c, pull) >= energies[-1] - 1e-9


@pytest.mark.compiled
def test_the_kernel_equals_its_plain_python(rng, monkeypatch):
    S, X, A, c, pull = problem(rng)
    compiled = flip_feature_bits(S, X, A, c, pull)
    monkeypatch.setattr(dfm, "_sum_fitted", dfm._sum_fitted.py_func)
    np.testing.assert_array_equal(flip_feature_bits(S, X, A, c, pull), compiled)


def test_biases_settle_at_the_ridge_solution(rng):
    S, *_ = problem(rng)
    found = None
    for _ in range(200):
        found = fit_biases(S, S.data, 2.0, found)
    users = np.repeat(np.arange(40), np.diff(S.indptr))
    one_hot = np.hstack([np.ones((S.nnz, 1)), np.eye(40)[users], np.eye(15)[S.indices]])
    gram = one_hot.T @ one_hot + np.diag([0.0] + [2.0] * 55)
    expected = np.linalg.solve(gram, one_hot.T @ S.data)
    np.testing.assert_allclose([found.base, *found.users, *found.items], expected, atol=1e-6)


def test_items_are_a_code_and_a_bias(small):
    one, two = (DFM(n_bits=16, n_rounds=2, use_item_bias=use).fit(small) for use in (True, False))
    assert not one.has_codes
    np.testing.assert_array_equal(one.items.vectors[:, :-1], two.items.vectors[:, :-1])
    assert set(np.unique(one.items.vectors[:, :-1])) == {-1, 1}
    assert one.items.vectors[:, -1].any()
    assert not two.items.vectors[:, -1].any()
    np.testing.assert_array_equal(one.encode(contract.PEOPLE).vectors[:, -1], 1)


@pytest.mark.slow
def test_the_bias_of_items_ranks_and_so_do_negatives():
    train, cold = split_cold_users(read("sample", n_users=1000), seed=0)
    trial = make_trial(train, cold)
    found = {}
    for name, settings in {
        "without": DFM(n_bits=16, use_item_bias=False),
        "with": DFM(n_bits=16),
        "negatives": DFM(n_bits=16, n_negatives=1, n_rounds=5),
    }.items():
        model = settings.fit(train)
        ranks = rank(lambda people, _, model=model: model.score(model.encode(people)), trial)
        found[name] = accuracy_at(10, ranks.greater, ranks.equal)
    assert found["with"] > 1.2 * found["without"]
    assert found["negatives"] > 3 * found["with"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_bits": 0},
        {"n_negatives": -1},
        {"bias_ridge": -1},
        {"balance_weight": -1},
        {"n_rounds": 0},
        {"n_relaxed": 0},
        {"ridge": 0},
    ],
)
def test_settings_are_checked(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        DFM(**wrong)
