from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from coldhash import sparse


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 30), st.integers(1, 20), st.integers(1, 9), st.integers(0, 1000))
def test_sparse_times_dense(n_rows, n_columns, n_bits, seed):
    rng = np.random.default_rng(seed)
    S = csr_array(random_array((n_rows, n_columns), density=0.3, rng=rng, dtype=np.float32))
    D = rng.normal(size=(n_columns, n_bits)).astype(np.float32)
    product = sparse.times(S, D)
    np.testing.assert_allclose(product, S.toarray() @ D, rtol=1e-4, atol=1e-5)
    order = sparse.even_order(S.indptr)
    assert sorted(order) == list(range(n_rows))
    plain = sparse._times.py_func(S.indptr, S.indices, S.data, D, order)
    np.testing.assert_allclose(plain, product, rtol=1e-6)
