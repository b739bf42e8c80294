"""Tables and limits of the scan as plain Python; the kernel as a whole is tested by its answers."""

from __future__ import annotations

import numpy as np
import pytest

from coldhash.search import kernels


def plain(name):
    """A compiled function as plain Python."""
    function = getattr(kernels, name)
    return getattr(function, "py_func", function)


def test_hamming_tables(rng, monkeypatch):
    monkeypatch.setattr(kernels, "COUNTS_BITS", False)  # where there is an instruction for it
    code = rng.integers(2**64, size=2, dtype=np.uint64)
    tables = np.zeros((18, 16), np.uint8)
    plain("_hamming_tables")(code, tables, np.zeros(8))
    for half in range(18):
        own = int(code[half // 16]) >> 4 * (half % 16) & 15
        assert tables[half].tolist() == [int(value ^ own).bit_count() for value in range(16)]


def weighted_tables(query, base=0.0, gain=1.0):
    n_halves = 2 * -(-len(query) // 8)
    rounded, exact = np.zeros((n_halves, 16), np.uint8), np.zeros((n_halves, 16), np.int32)
    terms = np.zeros(8)
    worth = np.array([[base], [gain]])
    assert plain("_weighted_tables")(query, worth, rounded, exact, terms)
    return rounded, exact, terms


@pytest.mark.parametrize("n_bits", [70, 72])
def test_weighted_tables(rng, n_bits):
    query = rng.standard_normal(n_bits).astype(np.float32)
    rounded, exact, terms = weighted_tables(query)
    unit = terms[kernels.UNIT] / 2
    assert exact.max(axis=1).sum() == 2 * terms[kernels.HALF]
    assert exact.max(axis=1).sum() * unit == pytest.approx(np.abs(query).sum(), rel=1e-5)
    np.testing.assert_array_equal(rounded, exact >> kernels.ROUNDING)
    lost = (exact % (1 << kernels.ROUNDING)).max(axis=1).sum()
    assert terms[kernels.ERROR] == pytest.approx(2 * unit * lost)


def test_a_query_of_zeros_has_a_unit():
    assert weighted_tables(np.zeros(12, np.float32))[2][kernels.UNIT] == 2.0


@pytest.mark.parametrize("limit", [np.inf, 1e30, 511.9, 300.0, 1.0, 1e-9, 0.0])
@pytest.mark.parametrize("gain", [0.0, 1e-38, 0.01, 1.0, 3.0, 1e30])
def test_no_distance_from_the_limit_on_has_a_cost_below_it(monkeypatch, rng, gain, limit):
    monkeypatch.setattr(kernels, "_cost_terms", plain("_cost_terms"))
    base, widest = 0.3 * gain, 65535
    terms = weighted_tables(rng.standard_normal(64).astype(np.float32), base, gain)[2][None]
    unit, half = terms[0, kernels.UNIT], terms[0, kernels.HALF]
    terms[0, kernels.LIMIT] = limit
    worth = np.array([[base], [gain]])
    with np.errstate(all="ignore"):  # as compiled code divides
        first = plain("_level_limit")(worth, 0, terms, 0, widest)
    rounded = np.arange(widest + 1)
    scores = gain * (base + unit * (half - (rounded << kernels.ROUNDING)))
    costs = (terms[0, kernels.TOP] - scores) * terms[0, kernels.SCALE]
    assert not (costs < limit - kernels.TINY)[first:-1].any()
    assert first == widest or first <= np.count_nonzero(costs < limit + kernels.TINY)
