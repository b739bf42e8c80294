"""Delegates are balanced and uncorrelated, and as near to the codes as that allows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldhash.arrays.codes import signs
from coldhash.baselines.shared import balance, delegate
from coldhash.errors import SettingError


def assert_balanced(X):
    n, n_bits = X.shape
    np.testing.assert_allclose(X.sum(axis=0), 0, atol=1e-6 * n)
    np.testing.assert_allclose(X.T @ X, n * np.eye(n_bits), atol=1e-6 * n)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 12), st.integers(1, 30), st.integers(0, 1000))
def test_balanced_and_uncorrelated_whatever_the_codes(n_bits, more, seed):
    B = signs(np.random.default_rng(seed).normal(size=(n_bits + more, n_bits)), np.float64)
    assert_balanced(delegate(B))


@pytest.mark.parametrize("n_distinct", [0, 1, 3])
def test_codes_that_vary_in_few_directions(rng, n_distinct):
    """Equal codes, or bits that repeat each other: the rest is completed."""
    bits = signs(rng.normal(size=(40, n_distinct)), np.float64)
    B = np.hstack([bits, bits, -bits, np.ones((40, 8 - n_distinct))])
    X = delegate(B)
    assert_balanced(X)
    nearest = np.linalg.svd(B - B.mean(axis=0), compute_uv=False).sum() * np.sqrt(len(B))
    assert np.sum(B * X) == pytest.approx(nearest)


def test_nothing_balanced_is_nearer(rng):
    B = signs(rng.normal(loc=[0, 0, 0.5, 0.5, 1, 1], size=(50, 6)), np.float64)
    B[:, 1] = np.where(rng.random(50) < 0.8, B[:, 0], B[:, 1])
    best = np.sum(B * delegate(B))
    for _ in range(50):
        assert np.sum(B * delegate(B + rng.normal(scale=0.3, size=B.shape))) <= best + 1e-9


def test_what_is_balanced_stays(rng):
    X = delegate(rng.normal(size=(30, 5)))
    np.testing.assert_allclose(delegate(X), X, atol=1e-8)


def test_as_many_codes_as_bits_are_too_few(rng):
    with pytest.raises(SettingError, match="at most 7 bits"):
        delegate(rng.normal(size=(8, 8)))
    assert not balance(rng.normal(size=(8, 8)), 0.0).any()
    assert_balanced(delegate(rng.normal(size=(9, 8))))
