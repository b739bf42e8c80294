"""Descent over known entries: what it gives is what the equations say."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import set_num_threads
from scipy.sparse import csr_array, random_array

from coldhash.arrays.codes import signs
from coldhash.baselines import dcf
from coldhash.baselines.dcf import (
    N_SWEEPS,
    code_targets,
    fitted_entries,
    flip_bits,
    loss,
    solve_rows,
)
from coldhash.data.ratings import Ratings
from coldhash.errors import DataError

N_ROWS, N_COLUMNS = 30, 20


def problem(rng, n_bits, real=False):
    S = csr_array(random_array((N_ROWS, N_COLUMNS), density=0.4, rng=rng, dtype=np.float64))
    S.data[:] = n_bits * rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], size=S.nnz)  # a 0 is known too
    S = csr_array((S.data, S.indices, S.indptr), shape=S.shape)
    B = signs(rng.normal(size=(N_ROWS, n_bits)), np.float64)
    D = rng.normal(size=(N_COLUMNS, n_bits))
    pull = rng.normal(size=(N_ROWS, n_bits))
    return S, B, (D if real else signs(D, np.float64)), pull


def energy(S, B, D, pull, rho):
    """The sum to be lowered, row by row, from dense matrices."""
    known = np.zeros(S.shape, dtype=bool)
    known[np.repeat(np.arange(S.shape[0]), np.diff(S.indptr)), S.indices] = True
    fitted = B @ D.T
    errors = np.where(known, (S.toarray() - fitted) ** 2, rho * fitted**2)
    return errors.sum(axis=1) - 2 * np.sum(B * pull, axis=1)


def one_row(s, b, D, pull):
    """The step as the paper writes it: z_k = Σ d_k (s - Σ_{l≠k} b_l d_l) + pull_k."""
    b = b.copy()
    for _ in range(N_SWEEPS):
        for k in range(len(b)):
            others = D @ b - D[:, k] * b[k]
            z = D[:, k] @ (s - others) + pull[k]
            b[k] = np.sign(z) if z != 0 else b[k]
    return b


@pytest.mark.parametrize("real", [False, True])
def test_all_rows_at_once_equal_a_loop_over_rows(rng, real):
    S, B, D, pull = problem(rng, 8, real)
    together = flip_bits(S, B, D, pull)
    for u in range(N_ROWS):
        own = slice(S.indptr[u], S.indptr[u + 1])
        alone = one_row(S.data[own], B[u], D[S.indices[own]], pull[u])
        np.testing.assert_array_equal(together[u], alone)


@pytest.mark.compiled
@pytest.mark.parametrize("rho", [0.0, 0.3])
def test_the_kernel_equals_its_plain_python(rng, monkeypatch, rho):
    S, B, D, pull = problem(rng, 6, real=True)
    compiled = flip_bits(S, B, D, pull, rho)
    for name in ("_flip_rows", "flip_row"):
        monkeypatch.setattr(dcf, name, getattr(dcf, name).py_func)
    np.testing.assert_array_equal(flip_bits(S, B, D, pull, rho), compiled)


@pytest.mark.compiled
def test_other_kernels_equal_their_plain_python(rng, monkeypatch):
    S, B, D, pull = problem(rng, 6, real=True)
    compiled = solve_rows(S, D, pull, 0.1, 0.3), fitted_entries(S, B, D)
    for name in ("_solve_rows", "_fitted_entries"):
        monkeypatch.setattr(dcf, name, getattr(dcf, name).py_func)
    plain = solve_rows(S, D, pull, 0.1, 0.3), fitted_entries(S, B, D)
    for one, two in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 17), st.sampled_from([0.0, 0.2, 1.0]), st.booleans(), st.integers(0, 1000))
def test_no_row_ever_gets_worse(n_bits, rho, real, seed):
    S, B, D, pull = problem(np.random.default_rng(seed), n_bits, real)
    steps = []
    for _ in range(3):
        steps.append(flip_bits(S, steps[-1] if steps else B, D, pull, rho))
    energies = [energy(S, each, D, pull, rho) for each in (B, *steps)]
    for before, after in pairwise(energies):
        assert (after <= before + 1e-9 * np.abs(before)).all()
    assert set(np.unique(steps[-1])) <= {-1.0, 1.0}


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_at_the_end_no_single_flip_helps(rng, rho):
    S, B, D, pull = problem(rng, 10)
    for _ in range(40):
        B = flip_bits(S, B, D, pull, rho)
    best = energy(S, B, D, pull, rho)
    for k in range(10):
        flipped = B.copy()
        flipped[:, k] *= -1
        assert (energy(S, flipped, D, pull, rho) >= best - 1e-9 * np.abs(best)).all()


def test_columns_are_rows_of_the_transposed(rng):
    S, B, D, _ = problem(rng, 8)
    St, none = csr_array(S.T.tocsr()), np.zeros(D.shape)
    new = flip_bits(St, D, B, none)
    assert loss(S, B, new) == pytest.approx(loss(St, new, B))
    assert loss(S, B, new) < loss(S, B, D)


def test_threads_do_not_matter_and_the_input_is_left_alone(rng):
    S, B, D, pull = problem(rng, 16, real=True)
    before = B.copy()
    set_num_threads(1)
    alone = flip_bits(S, B, D, pull, 0.1)
    set_num_threads(2)
    np.testing.assert_array_equal(flip_bits(S, B, D, pull, 0.1), alone)
    np.testing.assert_array_equal(B, before)


def test_a_row_without_entries_follows_its_pull(rng):
    _, B, D, pull = problem(rng, 8)
    empty = csr_array((N_ROWS, N_COLUMNS), dtype=np.float64)
    np.testing.assert_array_equal(flip_bits(empty, B, D, pull), np.sign(pull))


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_relaxed_rows_are_where_the_slope_is_zero(rng, rho):
    S, _, D, pull = problem(rng, 5, real=True)
    P = solve_rows(S, D, pull, 0.2, rho)
    counts = np.maximum(np.diff(S.indptr), 1)

    def total(rows):
        return (energy(S, rows, D, pull, rho) + 0.2 * counts * np.sum(rows**2, axis=1)).sum()

    for _ in range(20):
        assert total(P + rng.normal(scale=1e-2, size=P.shape)) > total(P)


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_the_loss_is_the_sum_over_all_entries(rng, rho):
    S, B, D, pull = problem(rng, 7, real=True)
    assert loss(S, B, D, rho) == pytest.approx(energy(S, B, D, 0 * pull, rho).sum())


def ratings_of(values, scale=None):
    n = len(values)
    return Ratings.from_columns(range(n), range(n), np.array(values), scale=scale)


def test_ratings_are_scaled_to_what_codes_can_say():
    np.testing.assert_allclose(code_targets(ratings_of([1, 3, 5]), 8).data, [-8, 0, 8])
    np.testing.assert_allclose(code_targets(ratings_of([3, 4], (1, 5)), 8).data, [0, 4])
    lowest = code_targets(ratings_of([1, 5]), 10, lowest=0.0)
    np.testing.assert_allclose(lowest.data, [-6, 10])
    np.testing.assert_allclose(code_targets(ratings_of([3, 3]), 8).data, [8, 8])
    with pytest.raises(DataError):
        code_targets(ratings_of([]), 8)


def test_negatives_are_unknown_entries(rng):
    S, *_ = problem(rng, 8)
    more = dcf.add_negatives(S, 2, -9.0, rng)
    assert S.nnz < more.nnz <= 3 * S.nnz
    dense, added = S.toarray(), more.toarray() == -9
    np.testing.assert_array_equal(np.where(added, 0, more.toarray()), dense)
    assert added.sum() == more.nnz - S.nnz  # none stands on a known entry, known 0s included
    assert dcf.add_negatives(S, 0, -9.0, rng) is S
    assert more.has_sorted_indices
