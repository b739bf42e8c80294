"""DCMF: what is planted is found, the objective falls, and features lead strangers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import spearmanr

import contract
from coldhash import Dataset, read, split_cold_users
from coldhash.arrays.codes import signs
from coldhash.baselines.dcf import DCMF
from coldhash.errors import SettingError
from coldhash.evaluate.metrics import accuracy_at
from coldhash.evaluate.protocol import make_trial, rank
from coldhash.recommender.recommender import Recommender

pytestmark = pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")

N_BITS = 8


@pytest.fixture(scope="module")
def small():
    return read("sample", n_users=240, n_items=90)


@pytest.fixture
def planted(rng):
    """A world whose ratings, three in five of them known, are what planted codes say.

    Users tell all bits of their codes. Gives the data and the codes of users and items.
    """
    B, D = (signs(rng.normal(size=(n, N_BITS))).astype(int) for n in (150, 60))
    users, items = np.nonzero(rng.random((150, 60)) < 0.6)
    agreement = np.sum(B[users] * D[items], axis=1)
    data = Dataset.from_tables(
        {"user_id": users, "item_id": items, "rating": 3 + 2 * agreement / N_BITS},
        {"user_id": np.arange(150)} | {f"bit {k}": B[:, k].astype(str) for k in range(N_BITS)},
        {"item_id": np.arange(60)},
        scale=(1.0, 5.0),
        name="planted",
    )
    return data, B, D


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_contract(check, small):
    check(DCMF(n_bits=16, rho=0.3, n_rounds=4), small)


def likeness(model, D) -> float:
    """Rank correlation of how alike items are: by code, and as planted."""
    pairs = np.triu_indices(len(D), k=1)
    found = model.items.rows(model.item_ids.rows(np.arange(len(D)))).astype(int)
    return spearmanr((found @ found.T)[pairs], (D @ D.T)[pairs]).statistic


def best_fit(data) -> tuple[Recommender, list[Recommender]]:
    """Fit from a few starts: gives the model of the lowest objective, and all of them."""
    settings = DCMF(  # so few ratings need little balance, and these features tell all
        n_bits=N_BITS, n_relaxed=10, balance_weight=0.01, content_weight=10.0
    )
    models = [settings.fit(data, seed=seed) for seed in range(5)]
    return min(models, key=lambda model: model.report["objective"][-1]), models


@pytest.mark.slow
def test_planted_neighbours_are_found(planted):
    """From most starts; a start may end in a local minimum, which the objective shows."""
    data, _, D = planted
    best, models = best_fit(data)
    assert likeness(best, D) >= 0.99
    assert np.median([likeness(model, D) for model in models]) >= 0.9


def test_strangers_get_the_codes_that_their_features_tell(planted):
    data, B, D = planted
    model, _ = best_fit(data)
    people = [{f"bit {k}": str(B[u, k]) for k in range(N_BITS)} for u in range(20)]
    scores = model.score(model.encode(people), "hamming")
    meant = (B[:20] @ D.T)[:, model.item_ids.rows(np.arange(len(D)))]
    assert spearmanr(scores.ravel(), meant.ravel()).statistic >= 0.9


@pytest.mark.parametrize("rho", [0.0, 0.5])
@pytest.mark.parametrize("content_weight", [0.1, 100.0])
def test_the_objective_never_rises(small, rho, content_weight):
    model = DCMF(n_bits=16, rho=rho, content_weight=content_weight, n_rounds=20).fit(small)
    objective = model.report["objective"]
    assert all(after <= before + 1e-9 * abs(before) for before, after in pairwise(objective))
    assert objective[-1] < objective[0]


def test_features_pull_codes_to_them(small):
    apart = []
    for content_weight in (0.0, 1e4):
        model = DCMF(n_bits=16, content_weight=content_weight).fit(small)
        says = model.encode(small.users).vectors
        apart.append(np.mean(signs(says) != model.user_vectors))
    assert apart[1] < apart[0] / 2


@pytest.mark.slow
def test_unknown_entries_rank_better_than_known_ones_alone():
    train, cold = split_cold_users(read("sample", n_users=1000), seed=0)
    trial = make_trial(train, cold)
    found = {}
    for rho in (0.0, 0.5):
        model = DCMF(n_bits=32, rho=rho).fit(train)
        ranks = rank(lambda people, _, model=model: model.score(model.encode(people)), trial)
        found[rho] = accuracy_at(5, ranks.greater, ranks.equal)
    assert found[0.5] > 2 * found[0.0]
    assert found[0.5] > 0.06


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_bits": 0},
        {"content_weight": -1},
        {"map_ridge": 0},
        {"rho": 1.1},
        {"balance_weight": -1},
        {"n_rounds": 0},
        {"n_relaxed": 0},
        {"ridge": 0},
    ],
)
def test_settings_are_checked(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        DCMF(**wrong)
