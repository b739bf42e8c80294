"""The fast MFDCF beside a slow one in double precision, written from the equations alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from coldhash import MFDCF, FeaturePlan, read, split_cold_users
from coldhash.arrays.codes import pack
from coldhash.data.plan import Category, Number
from coldhash.evaluate.metrics import judge
from coldhash.evaluate.protocol import make_trial, scorer
from coldhash.mfdcf.problem import fit_preference, uniform
from coldhash.partitions import MemoryPartitions
from coldhash.recommender.items import CodeItems
from reference import Reference

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse"),
]
SEED = 3
FIXED = MFDCF(
    n_bits=16,
    n_rounds=6,
    tolerance=0.0,
    ridge=10.0,
    fit_weight=0.5,
    code_weight=0.3,
    popularity_power=0.5,
    stranger_weight=0.6,
    stranger_code_share=0.4,
)
NO_LEVEL = replace(FIXED, level=False)
BY_SETTINGS = {
    "strangers": FIXED,
    "no strangers": replace(FIXED, stranger_weight=0.0),
    "the paper's loss": replace(FIXED, stranger_weight=0.0, popularity_power=0.0),
    "low rank": replace(FIXED, rank_weight=300.0, retained_rank=2, ridge=0.5),
    "nothing beyond the rank": replace(FIXED, retained_rank=8),
    "blocks of three": replace(FIXED, n_bits=17),
    "ratings hardly count": replace(FIXED, fit_weight=0.01, code_weight=50.0),
    "no level": NO_LEVEL,
    "no level, the paper's loss": replace(NO_LEVEL, stranger_weight=0.0, popularity_power=0.0),
}


@pytest.fixture(autouse=True)
def _one_thread():
    """Thousands of small products are faster on one."""
    with threadpool_limits(1, "blas"):
        yield


@pytest.fixture(scope="module")
def world():
    """People of whom some have no group at all."""
    data = read("sample", n_users=240, n_items=90)
    plan = FeaturePlan(
        users={"who": {"age": Number(), "city": Category()}},
        items=data.plan.items,
        preference=data.plan.preference,
    )
    assert data.users.column("age").null_count
    return data.with_plan(plan)


def random_codes(data, n_bits):
    shape = (len(data.ratings.items), n_bits)
    return np.random.default_rng(7).choice([-1.0, 1.0], shape).astype(np.float32)


def reference_of(data, settings, features):
    """The same problem in double precision; ratings are made targets here once more."""
    matrix, n_bits = data.ratings.matrix, settings.n_code_bits
    targets = np.zeros(matrix.shape)
    owners = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    other = 0.3 * (1 - matrix.nnz / targets.size)
    targets[owners, matrix.indices] = np.where(matrix.data >= 4, 1.0, other)  # stars, 1 to 5
    weights = targets.sum(axis=0) ** settings.popularity_power
    rank = settings.retained_rank or n_bits // 2
    n_users, n_items = targets.shape
    roots = np.sqrt(((targets == 1).sum(axis=0) + 0.5) / (n_users + 1))
    unit = roots.max() / 255
    return Reference(
        S=targets,
        level=settings.level,
        v=weights / weights.mean(),
        m=targets.mean(axis=0) if settings.level else np.zeros(n_items),
        g=np.maximum(np.rint(roots / unit), 1) * unit if settings.level else np.ones(n_items),
        trained=uniform(np.arange(n_users), 0) >= 0.25,
        X={name: X.astype(float) for name, X in features.matrices.items()},
        has={name: has.astype(float) for name, has in features.has.items()},
        unseen=tuple(name for name in features.matrices if name != "preference"),
        D=random_codes(data, n_bits).astype(float),
        alpha=settings.fit_weight,
        beta=settings.code_weight,
        gamma=settings.rank_weight,
        epsilon=settings.ridge,
        rank=rank,
        rho=settings.stranger_weight,
        share=settings.stranger_code_share,
        width=next(width for width in (4, 3, 2, 1) if n_bits % width == 0),
        sweeps=settings.n_sweeps,
    )


def fitted(data, settings):
    return settings.fit(data, seed=SEED, item_codes=random_codes(data, settings.n_code_bits))


def features_of(data, model):
    """The features of the encoder, and the preference group, which is only part of the fit."""
    features = model.features.apply(data.users)
    if not model.settings["level"]:
        content = model.features.item_content(data.items, len(data.item_ids))
        users, width = MemoryPartitions(data.records()), data.plan.preference.max_width
        preference = fit_preference(users, content, data.scale, width, SEED)(data.ratings.matrix)
        features.matrices["preference"] = preference
        features.has["preference"] = preference[:, -1] > 0
    return features


@pytest.mark.parametrize("settings", BY_SETTINGS.values(), ids=BY_SETTINGS)
def test_every_round_is_what_the_equations_say(settings, world):
    """Objective and item codes after each round; at the end user vectors, maps and weights."""
    last = fitted(world, settings)
    slow = reference_of(world, settings, features_of(world, last))
    rng = np.random.default_rng(SEED)
    objective = []
    for n in range(settings.n_rounds):
        objective.append(slow.round(rng))
        fast = fitted(world, replace(settings, n_rounds=n + 1))
        assert_same_codes(fast.items.rows(), slow)
        np.testing.assert_allclose(fast.report["objective"], objective, rtol=2e-6)
    slow.finish()
    scale = np.abs(slow.H).max()
    np.testing.assert_allclose(last.user_vectors, slow.H, atol=2e-5 * scale)
    for name, W in last.encoder.maps.items():
        np.testing.assert_allclose(W, slow.W[name], atol=2e-5 * scale)
    total = sum(1 / mu for mu in slow.mu.values())
    for name, share in last.report["group_weights"].items():
        assert share == pytest.approx(1 / slow.mu[name] / total, rel=1e-4)


def assert_same_codes(fast, slow):
    """A row may differ if both codes are as good: in what float32 cannot tell apart.

    A code as good may lead elsewhere in later rounds; then the row after it fails here, and the
    seed above should be another one. It has not happened.
    """
    for row in np.flatnonzero((fast != slow.D).any(axis=1)):
        energies = [d @ slow.G @ d - 2 * d @ slow.L[row] for d in (fast[row], slow.D[row])]
        np.testing.assert_allclose(*energies, rtol=1e-6, err_msg=f"item {row}")


def test_a_mistake_in_the_equations_would_be_seen(world):
    """One weight that is off is seen within two rounds, so the comparison says something.

    By a hundredth; what only moves bits, by a third, so that some of them flip.
    """
    settings = replace(BY_SETTINGS["low rank"], n_rounds=2, ridge=20.0, fit_weight=0.05)
    fast = fitted(world, settings)
    hundredth, third = dict.fromkeys(("alpha", "beta", "gamma", "epsilon"), 1.01), 4 / 3
    for name, factor in {**hundredth, "rho": third, "share": third}.items():
        slow = reference_of(world, settings, features_of(world, fast))
        setattr(slow, name, getattr(slow, name) * factor)
        rng = np.random.default_rng(SEED)
        objective = [slow.round(rng) for _ in range(2)]
        assert not np.allclose(fast.report["objective"], objective, rtol=2e-6), name


def test_single_precision_costs_nothing():
    """In double precision fewer than one bit in a thousand differs, and accuracy is the same."""
    train, cold = split_cold_users(read("sample", n_users=500, n_items=200), seed=0)
    settings = replace(FIXED, n_bits=40, n_rounds=8, stranger_code_share=1.0)
    single = fitted(train, settings)
    slow = reference_of(train, settings, features_of(train, single))
    rng = np.random.default_rng(SEED)
    for _ in range(8):
        slow.round(rng)
    slow.finish()
    assert (single.items.rows() != slow.D).mean() < 1e-3
    assert ((single.user_vectors >= 0) != (slow.H >= 0)).mean() < 1e-3
    maps = {name: slow.W[name] for name in single.encoder.maps}
    index, packed = single.items, pack(slow.D.astype(np.int8))
    levels = (index.levels_of(), index.gains, index.steps)
    double = replace(
        single,
        items=CodeItems.of(packed, 32, single.popularity, *levels),
        encoder=replace(single.encoder, maps=maps, average=slow.average),
    )
    trial = make_trial(train, cold, protocol="sampled-1000", n_given=0, seed=0)
    found = [judge(scorer(model, "real"), trial).metrics for model in (single, double)]
    for name, value in found[0].items():
        assert value == pytest.approx(found[1][name], abs=1e-3), name
