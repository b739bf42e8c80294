from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldhash.arrays.codes import n_words, pack, signs, unpack
from coldhash.errors import DataError

CODES = st.integers(1, 200).flatmap(
    lambda n: st.lists(
        st.lists(st.sampled_from([-1, 1]), min_size=n, max_size=n), min_size=1, max_size=6
    )
)


@pytest.mark.slow
@settings(deadline=None)
@given(CODES)
def test_packing_is_undone_by_unpacking(rows):
    codes = np.array(rows, dtype=np.int8)
    packed = pack(codes)
    assert packed.shape == (len(rows), n_words(codes.shape[1]))
    assert packed.dtype == np.uint64
    np.testing.assert_array_equal(unpack(packed, codes.shape[1]), codes)


@pytest.mark.slow
@settings(deadline=None)
@given(CODES)
def test_products_are_hamming_distances(rows):
    codes = np.array(rows, dtype=np.int64)
    packed = pack(codes)
    n_bits = codes.shape[1]
    hamming = np.bitwise_count(packed[:, None] ^ packed[None]).sum(axis=2, dtype=np.int64)
    np.testing.assert_array_equal(codes @ codes.T, n_bits - 2 * hamming)


def test_the_layout_is_the_documented_one():
    codes = -np.ones((1, 70), dtype=np.int8)
    codes[0, [0, 9, 69]] = 1
    assert pack(codes).tolist() == [[1 + 2**9, 2**5]]
    assert pack(codes).astype("<u8").tobytes()[:2] == bytes([1, 2])


def test_the_sign_of_zero_is_plus():
    assert signs(np.array([0.0, -0.0, -1e-30, 2.0])).tolist() == [1, 1, -1, 1]


def test_what_is_no_code_is_refused():
    with pytest.raises(DataError) as error:
        pack(np.array([[0, 1]]))
    assert str(error.value) == "codes are rows of +1 and -1; hint: codes.signs(vectors)"
    with pytest.raises(DataError, match="65 bits"):
        unpack(np.zeros((2, 1), dtype=np.uint64), 65)
