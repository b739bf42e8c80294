"""Machines learn what is likely, and the network's slopes are the slopes."""

from __future__ import annotations

import numpy as np
import pytest

from coldhash.baselines.rbm import RBM, Tuner, batches, fit_rbm, fit_stack, output_layer, slopes


@pytest.fixture
def kinds(rng):
    """Rows of four kinds, each a pattern of twelve units, with a little noise."""
    patterns = (rng.random((4, 12)) < 0.5).astype(float)
    rows = patterns[rng.integers(4, size=300)]
    return np.where(rng.random(rows.shape) < 0.03, 1 - rows, rows)


def error(machine, V):
    return np.mean((V - machine.visible(machine.hidden(V))) ** 2)


def test_the_data_become_likely_and_noise_does_not(kinds, rng):
    shuffled = rng.permuted(kinds, axis=0)  # the units alone are the same, together they are not
    gaps, errors = [], []
    for n_epochs in (0, 10, 60):
        machine = fit_rbm(kinds, 16, np.random.default_rng(1), n_epochs=n_epochs, batch=20)
        gaps.append(machine.free_energy(kinds).mean() - machine.free_energy(shuffled).mean())
        errors.append(error(machine, kinds))
    assert gaps[2] < gaps[1] < gaps[0] + 1e-9
    assert gaps[2] < -1
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < errors[0] / 3


def test_free_energy_is_the_sum_over_hidden_units(rng):
    machine = RBM(rng.normal(size=(4, 3)), rng.normal(size=4), rng.normal(size=3))
    v = np.array([1.0, 0.0, 1.0, 1.0])
    every = ((np.arange(8)[:, None] >> np.arange(3)) & 1).astype(float)
    energies = -every @ (v @ machine.W) - v @ machine.a - every @ machine.c
    assert machine.free_energy(v[None])[0] == pytest.approx(-np.log(np.exp(-energies).sum()))


def test_same_seed_same_machine(kinds):
    one, two, other = (fit_rbm(kinds, 5, np.random.default_rng(s), n_epochs=3) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.W, two.W)
    assert not np.array_equal(one.W, other.W)


def test_a_stack_leads_upwards(kinds, rng):
    (W1, c1), (W2, c2) = fit_stack(kinds, (7, 5), rng, n_epochs=2)
    assert (W1.shape, c1.shape, W2.shape, c2.shape) == ((12, 7), (7,), (7, 5), (5,))


def test_slopes_are_those_of_the_error(rng):
    X, Y = rng.random((6, 4)), np.sign(rng.normal(size=(6, 2)))
    layers = tuple(output_layer(*shape, rng) for shape in ((4, 5), (5, 3), (3, 2)))
    parts = [part for layer in layers for part in layer]

    def half_error():
        return 0.5 * np.sum((Y - Tuner(list(layers), 0.1, 0)(X)) ** 2) / len(X)

    for part, slope in zip(parts, slopes(X, Y, layers), strict=True):
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
    network = Tuner([output_layer(2, 16, rng), output_layer(16, 1, rng)], 0.05, 0.0)
    before = np.mean((network(X) - Y) ** 2)
    for _ in range(60):
        network.epoch(X, Y, rng)
    assert np.mean((network(X) - Y) ** 2) < 0.05 < before


def test_batches_deal_out_every_row_once(rng):
    dealt = list(batches(25, 10, rng))
    assert [len(rows) for rows in dealt] == [10, 10, 5]
    np.testing.assert_array_equal(np.sort(np.concatenate(dealt)), np.arange(25))
