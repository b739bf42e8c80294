from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldhash.mfdcf import items


def problem(rng, n_rows, n_bits):
    H = rng.normal(size=(30, n_bits)).astype(np.float32)
    L = rng.normal(scale=30, size=(n_rows, n_bits)).astype(np.float32)
    D = np.where(rng.random((n_rows, n_bits)) < 0.5, -1, 1).astype(np.float32)
    return D, L, H.T @ H


def energy(D, L, G):
    """Return what the item step minimizes, by item: d G d' - 2 d l'."""
    return np.einsum("ir,rs,is->i", D, G, D) - 2 * np.einsum("ir,ir->i", D, L)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 17), st.integers(1, 3), st.integers(0, 1000))
def test_descent_never_raises_the_energy_of_any_row(n_bits, n_sweeps, seed):
    rng = np.random.default_rng(seed)
    D, L, G = problem(rng, 20, n_bits)
    new = items.descend(D, L, G, n_sweeps, rng)
    assert set(np.unique(new)) <= {-1, 1}
    before, after = energy(D, L, G), energy(new, L, G)
    assert (after <= before + 1e-4 * np.abs(before) + 1e-3).all()


def test_at_the_end_no_single_flip_helps(rng):
    D, L, G = problem(rng, 25, 12)
    for _ in range(50):
        D = items.descend(D, L, G, 10, rng)
    best = energy(D, L, G)
    for bit in range(12):
        flipped = D.copy()
        flipped[:, bit] *= -1
        assert (energy(flipped, L, G) >= best - 1e-3 * np.abs(best)).all()


@pytest.mark.parametrize("n_bits", [2, 3, 4])
def test_one_block_is_solved_exactly(rng, n_bits):
    D, L, G = problem(rng, 25, n_bits)
    new = items.descend(D, L, G, 1, rng)
    every = np.array(list(product([-1.0, 1.0], repeat=n_bits)), dtype=np.float32)
    best = np.min([energy(np.tile(code, (25, 1)), L, G) for code in every], axis=0)
    np.testing.assert_allclose(energy(new, L, G), best, rtol=1e-4, atol=1e-3)


def test_the_input_is_left_alone(rng):
    D, L, G = problem(rng, 10, 8)
    before = D.copy()
    items.descend(D, L, G, 2, rng)
    np.testing.assert_array_equal(D, before)


@pytest.mark.compiled
def test_the_kernel_equals_its_plain_python(rng, monkeypatch):
    D, L, G = problem(rng, 12, 8)
    compiled = items.descend(D, L, G, 3, np.random.default_rng(1))
    monkeypatch.setattr(items, "_descend", items._descend.py_func)
    plain = items.descend(D, L, G, 3, np.random.default_rng(1))
    np.testing.assert_array_equal(compiled, plain)
