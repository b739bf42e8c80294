"""BCCF: its objective falls, numbers stay in the box, bits are balanced."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array, random_array

import contract
from coldhash import read
from coldhash.baselines.bccf import BCCF, _update_rows
from coldhash.errors import SettingError


@pytest.fixture(scope="module")
def small():
    return read("sample", n_users=240, n_items=90)


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_contract(check, small):
    check(BCCF(n_bits=8), small)


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_the_objective_never_rises_and_bits_are_balanced(small):
    model = BCCF(n_bits=8).fit(small)
    objective = np.array(model.report["objective"])
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()
    assert model.name == "bccf+map"
    assert (np.abs(model.items.rows().mean(axis=0)) <= 2 / 90).all()


def problem(rng):
    T = csr_array(random_array((12, 9), density=0.5, rng=rng))
    T.data -= 0.5
    T.indices, T.indptr = T.indices.astype(np.int64), T.indptr.astype(np.int64)  # as ratings are
    return T, rng.uniform(-1, 1, (12, 4)), rng.uniform(-1, 1, (9, 4))


def test_rows_get_what_a_general_solver_finds(rng):
    T, U, V = problem(rng)
    ours, model = U, BCCF(balance_weight=0.05)
    for _ in range(300):  # rows share the balance, so they must be gone over again and again
        ours = model.update_rows(T, ours, V)
    rated = np.diff(T.indptr) > 0

    def value(numbers):
        return model.loss(T, np.where(rated[:, None], numbers.reshape(U.shape), U), V)

    best = minimize(value, U.ravel(), method="L-BFGS-B", bounds=[(-1, 1)] * U.size)
    np.testing.assert_allclose(model.loss(T, ours, V), best.fun, rtol=1e-4)
    assert np.abs(ours).max() <= 1


@pytest.mark.compiled
def test_the_kernel_agrees_with_the_interpreter(rng):
    T, U, V = problem(rng)
    slow = _update_rows.py_func(T.indptr, T.indices, T.data, U.copy(), V, 0.05)
    np.testing.assert_allclose(BCCF(balance_weight=0.05).update_rows(T, U, V), slow, atol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [{"n_bits": 0}, {"n_rounds": 0}, {"balance_weight": 0}, {"map_ridge": 0}],
    ids=str,
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(SettingError, match="BCCF"):
        BCCF(**settings)
