"""ZSR: its equation is solved, its objective falls, and it is worth having."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg
from scipy.sparse import csr_array, random_array

import contract
import worlds
from coldhash import read
from coldhash.baselines.controls import Popularity
from coldhash.baselines.shared import favourite_matrix, solve_ridge, stack_features
from coldhash.baselines.zsr import ZSR, decompose_gram, solve_sylvester
from coldhash.data.dataset import split_cold_users
from coldhash.errors import SettingError
from coldhash.evaluate.metrics import accuracy_at
from coldhash.evaluate.protocol import make_trial, rank


@pytest.fixture(scope="module")
def small():
    return read("sample", n_users=240, n_items=90)


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_contract(check, small):
    check(ZSR(), small)


def test_a_checkerboard_is_learned():
    model = ZSR().fit(worlds.checkerboard())
    for parity, own in (("even", 0), ("odd", 1)):
        scores = model.score(model.encode({"parity": parity}))[0]
        assert scores[own::2].min() > scores[1 - own :: 2].max()


@pytest.mark.slow
def test_strangers_get_more_than_popularity():
    train, cold = split_cold_users(read("sample", n_users=1000), 0.2, seed=0)
    trial = make_trial(train, cold)

    def accuracy(settings):
        model = settings.fit(train)
        found = rank(lambda people, history: model.score(model.encode(people, history)), trial)
        return accuracy_at(10, found.greater, found.equal)

    assert accuracy(ZSR()) >= accuracy(Popularity())


@pytest.mark.parametrize(("n_users", "n_items"), [(40, 25), (25, 40)])
def test_the_equation_is_solved_from_either_side(n_users, n_items, rng):
    S = csr_array(random_array((n_users, n_items), density=0.3, rng=rng))
    X = rng.standard_normal((n_users, 6))
    A, C = X.T @ X + np.eye(6), rng.standard_normal((6, n_items))
    b, N = decompose_gram(S)
    expected = linalg.solve_sylvester(A, (S.T @ S).toarray(), C)
    np.testing.assert_allclose(solve_sylvester(A, b, N, C), expected, atol=1e-8)


@pytest.mark.parametrize("encode_weight", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("retained_rank", [2, 10])
def test_the_objective_never_rises_and_is_what_it_says(encode_weight, retained_rank, rng):
    S = csr_array(random_array((60, 40), density=0.2, rng=rng))
    X = (rng.random((60, 8)) < 0.4).astype(np.float64)
    settings = ZSR(encode_weight=encode_weight, retained_rank=retained_rank, left_out=0, n_rounds=8)
    objective: list[float] = []
    W = settings.solve(X, S, rng, objective.append)
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()
    dense, sigma = S.toarray(), np.linalg.svd(W)[1]
    expected = (
        np.sum((dense - X @ W) ** 2)
        + encode_weight * np.sum((dense @ W.T - X) ** 2)
        + settings.rank_weight * np.sum(sigma[retained_rank:] ** 2)
        + settings.ridge * np.sum(W**2)
    )
    np.testing.assert_allclose(objective[-1], expected, rtol=1e-9)


def test_without_its_extras_it_is_a_ridge_regression(small):
    model = ZSR(encode_weight=0, rank_weight=0, ridge=3.0, n_rounds=1).fit(small)
    X = stack_features(model.features.apply(small.users), model.encoder.groups)
    Y = favourite_matrix(small).toarray()
    Y[small.ratings.matrix.toarray() > 0] += 0.3 * (1 - Y[small.ratings.matrix.toarray() > 0])
    expected = solve_ridge(X, X.T @ Y, 3.0)
    np.testing.assert_allclose(model.items.vectors, expected.T, atol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"encode_weight": -1},
        {"rank_weight": -1},
        {"retained_rank": 0},
        {"ridge": 0},
        {"left_out": 1},
        {"n_rounds": 0},
    ],
    ids=str,
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(SettingError, match=f"ZSR: {next(iter(settings))}="):
        ZSR(**settings)
