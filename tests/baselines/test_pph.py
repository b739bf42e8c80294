"""PPH: quartics are minimised exactly, and lengths become two bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

import contract
from coldhash import read
from coldhash.baselines.pph import PPH, _update_rows, encode_lengths, minimise_quartic
from coldhash.errors import SettingError


@pytest.fixture(scope="module")
def small():
    return read("sample", n_users=240, n_items=90)


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_contract(check, small):
    check(PPH(n_bits=6), small)


@given(
    st.floats(0, 100),
    st.floats(-100, 100).filter(lambda x: x == 0 or abs(x) > 1e-6),
    st.floats(-20, 20),
    st.floats(0.01, 16),
)
def test_no_other_number_is_lower(curve, pull, rest, weight):
    def value(x):
        return curve * x**2 - 2 * pull * x + weight * (x**2 + rest) ** 2

    best = value(getattr(minimise_quartic, "py_func", minimise_quartic)(curve, pull, rest, weight))
    others = value(np.linspace(-15, 15, 20_001))
    assert best <= others.min() + 1e-7 * max(1, abs(best), weight * rest**2)


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_the_objective_never_rises_and_codes_are_two_bits_longer(small):
    model = PPH(n_bits=6).fit(small)
    objective = np.array(model.report["objective"])
    assert (np.diff(objective) <= 1e-9 * objective[0]).all()
    assert model.name == "pph+map"
    assert model.items.n_bits == 8
    assert (model.user_vectors[:, -2:] > 0).all()
    assert (model.encode({"age": 30}).vectors[:, -2:] > 0).all()


def test_lengths_become_bits():
    lengths = np.array([1.0, 10, 10, 10, 10, 10, 10, 100])
    bits = encode_lengths(np.sqrt(lengths)[:, None])
    assert bits[[1, -1]].tolist() == [[-1, 1], [1, 1]]
    assert encode_lengths(np.array([[0.0], [3], [3], [3], [3], [3]]))[0].tolist() == [-1, -1]


@pytest.mark.compiled
def test_the_kernel_agrees_with_the_interpreter(rng):
    T = csr_array(random_array((12, 9), density=0.5, rng=rng))
    T.indices, T.indptr = T.indices.astype(np.int64), T.indptr.astype(np.int64)  # as ratings are
    U, V = rng.standard_normal((12, 4)), rng.standard_normal((9, 4))
    slow = U.copy()
    _update_rows.py_func(T.indptr, T.indices, T.data, V, 2.5, 0.5, slow, 0, 12)
    model = PPH(length_weight=0.5)
    np.testing.assert_allclose(model.update_rows(T, U, V, 2.5), slow, atol=1e-9)


@pytest.mark.parametrize(
    "settings",
    [{"n_bits": 0}, {"n_rounds": 0}, {"length_weight": 0}, {"map_ridge": 0}],
    ids=str,
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(SettingError, match="PPH"):
        PPH(**settings)
