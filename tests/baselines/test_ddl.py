"""DDL: the network follows the codes, and the encoder is the network."""

from __future__ import annotations

import numpy as np
import pytest

import contract
import worlds
from coldhash import read, split_cold_users
from coldhash.arrays.codes import signs
from coldhash.baselines.ddl import (
    DDL,
    Network,
    NetworkEncoder,
    UnitScale,
    draw_batches,
    draw_layer,
    fit_rbm,
    gradients,
    sigmoid,
    tanh,
)
from coldhash.errors import SettingError
from coldhash.evaluate.metrics import accuracy_at
from coldhash.evaluate.protocol import make_trial, rank
from coldhash.features.groups import Features

pytestmark = pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")

FAST = DDL(n_bits=16, hidden=(20,), n_rounds=3, n_pretrain=3)


@pytest.fixture(scope="module")
def small():
    return read("sample", n_users=240, n_items=90)


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_contract(check, small):
    check(FAST, small)


def test_two_machines_and_negatives(small):
    model = DDL(n_bits=16, hidden=(20, 10), n_negatives=1, n_rounds=3).fit(small)
    assert len(model.encoder.layers) == 3
    contract.check_scores_are_finite_numbers(DDL(n_bits=8, hidden=(9, 8), n_rounds=1), small)


def test_the_network_follows_the_codes():
    """A world in which features tell everything: even and odd users share a code each."""
    data = worlds.checkerboard()
    model = DDL(n_bits=8, hidden=(10,), masked=0, content_weight=100, n_negatives=1).fit(data)
    says = signs(model.encode(data.users).vectors)
    assert np.mean(says != model.user_vectors) < 0.15
    objective = model.report["objective"]
    assert objective[-1] < objective[0]


@pytest.mark.slow
def test_negatives_rank_better_than_known_entries_alone():
    train, cold = split_cold_users(read("sample", n_users=600, n_items=500), seed=0)
    trial = make_trial(train, cold)
    found = []
    for n_negatives in (0, 1):
        model = DDL(n_bits=32, n_negatives=n_negatives, n_rounds=8).fit(train)
        ranks = rank(lambda people, _, model=model: model.score(model.encode(people)), trial)
        found.append(accuracy_at(5, ranks.greater, ranks.equal))
    assert found[1] > 2 * found[0]


def test_an_encoder_survives_its_state(small):
    model = FAST.fit(small)
    again = NetworkEncoder.restore(model.encoder.state(), model.items, model.features)
    features = model.features.apply(contract.PEOPLE)
    one, two = model.encoder.encode(features, None), again.encode(features, None)
    np.testing.assert_array_equal(one.vectors, two.vectors)
    np.testing.assert_array_equal(one.fallback, two.fallback)
    assert one.fallback.tolist() == [True, False, False, False, True]
    assert np.abs(one.vectors).max() <= 1


def test_tanh_is_that_of_numpy():
    x = np.concatenate([np.linspace(-25, 25, 10_001), [0, 1e-300, -1e-9, 1e9, np.inf, -np.inf]])
    np.testing.assert_allclose(tanh(x), np.tanh(x), atol=1e-15)
    single = x.astype(np.float32)
    np.testing.assert_allclose(tanh(single), np.tanh(single), atol=1e-6)
    assert tanh(single).dtype == np.float32


def test_features_are_scaled_and_a_missing_group_is_zeros():
    matrices = {
        "one": np.array([[-2.0, 1], [2, 1], [0, 0]], dtype=np.float32),
        "two": np.array([[0.5, 1], [0, 1], [0.25, 1]], dtype=np.float32),
    }
    has = {"one": np.array([True, True, False]), "two": np.ones(3, dtype=bool)}
    scale = UnitScale.of(Features(matrices, has, 3), ("one", "two"))
    expected = [[0, 1, 0.5, 1], [1, 1, 0, 1], [0, 0, 0.25, 1]]
    np.testing.assert_allclose(scale(Features(matrices, has, 3)), expected)
    matrices["one"][0, 0] = -99  # further than anybody seen
    np.testing.assert_allclose(scale(Features(matrices, has, 3)), expected)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_bits": 0},
        {"content_weight": -1},
        {"n_negatives": -1},
        {"hidden": ()},
        {"hidden": (3, 0)},
        {"n_pretrain": -1},
        {"n_epochs": 0},
        {"rate": 0},
        {"masked": 1},
        {"balance_weight": -1},
        {"n_rounds": 0},
        {"n_relaxed": 0},
        {"ridge": 0},
    ],
)
def test_settings_are_checked(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        DDL(**wrong)


@pytest.fixture
def kinds(rng):
    """Rows of four kinds, each a pattern of twelve units, with a little noise."""
    patterns = (rng.random((4, 12)) < 0.5).astype(float)
    rows = patterns[rng.integers(4, size=300)]
    return np.where(rng.random(rows.shape) < 0.03, 1 - rows, rows)


def free_energy(machine, V):
    """-log Σ_h e^-E(v,h) of each row: low for what the machine expects."""
    W, a, c = machine
    return -V @ a - np.logaddexp(0, V @ W + c).sum(axis=1)


def error(machine, V):
    W, a, c = machine
    return np.mean((V - sigmoid(sigmoid(V @ W + c) @ W.T + a)) ** 2)


def test_the_data_become_likely_and_noise_does_not(kinds, rng):
    shuffled = rng.permuted(kinds, axis=0)  # the units alone are the same, together they are not
    gaps, errors = [], []
    for n_epochs in (0, 10, 60):
        machine = fit_rbm(kinds, 16, np.random.default_rng(1), n_epochs=n_epochs, batch=20)
        gaps.append(free_energy(machine, kinds).mean() - free_energy(machine, shuffled).mean())
        errors.append(error(machine, kinds))
    assert gaps[2] < gaps[1] < gaps[0] + 1e-9
    assert gaps[2] < -1
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < errors[0] / 3


def test_same_seed_same_machine(kinds):
    one, two, other = (fit_rbm(kinds, 5, np.random.default_rng(s), n_epochs=3) for s in (1, 1, 2))
    np.testing.assert_array_equal(one[0], two[0])
    assert not np.array_equal(one[0], other[0])


def test_gradients_are_the_slopes_of_the_error(rng):
    X, Y = rng.random((6, 4)), np.sign(rng.normal(size=(6, 2)))
    layers = tuple(draw_layer(*shape, rng) for shape in ((4, 5), (5, 3), (3, 2)))
    parts = [part for layer in layers for part in layer]

    def half_error():
        return 0.5 * np.sum((Y - Network(list(layers), 0.1, 0)(X)) ** 2) / len(X)

    for part, slope in zip(parts, gradients(X, Y, layers), strict=True):
        for at in np.ndindex(part.shape):
            old, values = part[at], []
            for step in (1e-5, -1e-5):
                part[at] = old + step
                values.append(half_error())
            part[at] = old
            assert slope[at] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-4, abs=1e-8)


def test_back_propagation_learns_what_no_single_layer_can(rng):
    X = rng.integers(2, size=(400, 2)).astype(float)
    Y = np.where(X[:, :1] == X[:, 1:], 1.0, -1.0)
    network = Network([draw_layer(2, 16, rng), draw_layer(16, 1, rng)], 0.05, 0.0)
    before = np.mean((network(X) - Y) ** 2)
    for _ in range(60):
        network.train(X, Y, rng)
    assert np.mean((network(X) - Y) ** 2) < 0.05 < before


def test_batches_hold_every_row_once(rng):
    batches = list(draw_batches(25, 10, rng))
    assert [len(rows) for rows in batches] == [10, 10, 5]
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(25))
