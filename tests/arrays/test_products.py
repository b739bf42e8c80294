from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from coldhash.arrays import kernels, products
from coldhash.arrays.codes import pack, signs


def matrices(n_rows, n_columns, n_bits, seed):
    rng = np.random.default_rng(seed)
    S = csr_array(random_array((n_rows, n_columns), density=0.3, rng=rng, dtype=np.float32))
    return S, rng.normal(size=(n_columns, n_bits)).astype(np.float32)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 150), st.integers(1, 20), st.integers(1, 90), st.integers(0, 1000))
def test_sparse_and_dense_give_the_product(n_rows, n_columns, n_bits, seed):
    S, D = matrices(n_rows, n_columns, n_bits, seed)
    expected = S.toarray() @ D
    np.testing.assert_allclose(products.times(S, D), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(products.times(S.toarray(), D), products.times(S, D))


@pytest.mark.parametrize("n_bits", [3, 16, 40, 70])
def test_a_product_has_the_precision_of_the_dense_matrix(n_bits):
    S, D = matrices(30, 20, n_bits, 6)
    expected = S.toarray().astype(np.float64) @ D.astype(np.float64)
    product = products.times(S, D.astype(np.float64))
    assert product.dtype == np.float64
    np.testing.assert_allclose(product, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dense", [False, True])
def test_a_row_is_the_same_in_any_company(dense):
    S, D = matrices(200, 50, 16, 3)
    A = S.toarray() if dense else S
    together = products.times(A, D)
    for row in range(200):
        np.testing.assert_array_equal(products.times(A[row : row + 1], D)[0], together[row])


@pytest.mark.compiled
def test_kernels_equal_their_plain_python(monkeypatch):
    S, D = matrices(12, 9, 84, 1)
    rows = (S.indptr, S.indices, S.data)
    for kernel, arguments in (
        (kernels.multiply_sparse, (*rows, D)),
        (kernels.multiply_codes, (*rows, pack(signs(D)), D[:, 0].copy())),
        (kernels.multiply_dense, (S.toarray(), D)),
    ):
        plain, compiled = np.zeros((2, 12, 84), np.float32)
        kernel.py_func(*arguments, plain, 0, 12)
        kernel(*arguments, compiled, 0, 12)
        np.testing.assert_allclose(plain, compiled, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n_bits", [5, 64, 130])
def test_packed_codes_give_the_product_with_codes(n_bits):
    S, D = matrices(100, 30, n_bits, 4)
    weights = np.abs(D[:, 0])
    product = products.times_codes(S, pack(signs(D)), weights, n_bits)
    expected = products.times(S, signs(D) * weights[:, None])
    np.testing.assert_allclose(product, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dense", [False, True])
def test_without_compiled_code_products_are_the_same_bits(monkeypatch, dense):
    S, D = matrices(20, 30, 16, 5)
    A = S.toarray() if dense else S
    words, weights = pack(signs(D)), np.abs(D[:, 0])
    compiled = products.times(A, D), products.times_codes(S, words, weights, 16)
    monkeypatch.setattr(products, "load_kernels", lambda *_: None)
    np.testing.assert_array_equal(products.times(A, D), compiled[0])
    np.testing.assert_array_equal(products.times_codes(S, words, weights, 16), compiled[1])


def test_matrices_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 3\) does not fit \(4, 2\)"):
        products.times(np.ones((2, 3), np.float32), np.ones((4, 2), np.float32))
