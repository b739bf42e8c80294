"""Parts of the scan beside themselves as plain Python.

The kernels as a whole cannot run as Python: their inner loop is LLVM code (`lanes.py`). Tables,
single distances and the final order can.
"""

from __future__ import annotations

import numpy as np
import pytest

from coldhash.arrays.codes import pack, signs
from coldhash.search import kernels
from coldhash.search.index import CodeIndex


@pytest.fixture
def index(rng):
    return CodeIndex.of(pack(signs(rng.standard_normal((200, 72)))), 72, np.zeros(200))


def both(function, *arguments):
    """What the compiled and the plain function give, each with what it wrote."""
    results = []
    for run in (function, getattr(function, "py_func", function)):
        copies = [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]
        results.append([run(*copies), *copies])
    for compiled, plain in zip(*results, strict=True):
        np.testing.assert_array_equal(compiled, plain)
    return results[0]


def test_python_cannot_call_what_is_compiled_for_kernels_only():
    for function in (kernels._valid, kernels._sums):
        if hasattr(function, "py_func"):  # compilation is not disabled
            with pytest.raises(TypeError, match="only compiled functions"):
                function(0, 200)


@pytest.fixture
def plain(monkeypatch):
    """The functions that only compiled ones can call, as plain Python."""
    for name in ("_cost_terms", "_level_limit", "_distance", "_valid"):
        function = getattr(kernels, name)
        monkeypatch.setattr(kernels, name, getattr(function, "py_func", function))


def test_hamming_tables(rng):
    code = rng.integers(2**64, size=2, dtype=np.uint64)
    _, _, tables = both(kernels._hamming_tables, code, np.zeros((18, 16), np.uint8))
    for half in range(18):
        own = int(code[half // 16]) >> 4 * (half % 16) & 15
        assert tables[half].tolist() == [int(value ^ own).bit_count() for value in range(16)]


@pytest.mark.parametrize("n_bits", [70, 72])
def test_weighted_tables(rng, n_bits):
    query = rng.standard_normal(n_bits).astype(np.float32)
    unit = both(kernels._weight_unit, query)[0]
    rounded, exact = np.zeros((18, 16), np.uint8), np.zeros((18, 16), np.int32)
    (total, error), _, _, rounded, exact = both(
        kernels._weighted_tables, query, unit, rounded, exact
    )
    assert total * unit == pytest.approx(np.abs(query).sum(), rel=1e-5)
    assert exact.max(axis=1).sum() == total
    np.testing.assert_array_equal(rounded, exact >> kernels.ROUNDING)
    assert (exact % (1 << kernels.ROUNDING)).max(axis=1).sum() == error


@pytest.mark.parametrize("limit", [np.inf, 1e30, 511.9, 300.0, 1.0, 1e-9, 0.0])
@pytest.mark.parametrize("gain", [0.0, 1e-38, 0.01, 1.0, 3.0, 1e30])
def test_no_distance_from_the_limit_on_has_a_cost_below_it(plain, gain, limit):
    unit, total, base, widest = 1e-6, 5_000_000, 0.3 * gain, 65535
    terms = np.zeros((1, 8))
    both(kernels._weighted_terms, unit, total, 0, base, gain, terms[0])
    kernels._weighted_terms(unit, total, 0, base, gain, terms[0])
    terms[0, kernels.LIMIT] = limit
    worth = np.array([[base], [gain]])
    with np.errstate(all="ignore"):  # as compiled code divides
        first = kernels._level_limit(worth, 0, terms, 0, widest)
    rounded = np.arange(widest + 1)
    scores = gain * (base + unit * (total - 2 * (rounded << kernels.ROUNDING)))
    costs = (terms[0, kernels.TOP] - scores) * terms[0, kernels.SCALE]
    assert not (costs < limit - kernels.TINY)[first:-1].any()
    assert first == widest or first <= np.count_nonzero(costs < limit + kernels.TINY)


def test_a_query_of_zeros_has_a_unit():
    assert both(kernels._weight_unit, np.zeros(12, np.float32))[0] == 1.0


def test_single_distances(plain, rng, index):
    query = pack(signs(rng.standard_normal((1, 72))))
    tables = np.zeros((1, 18, 16), np.uint8)
    kernels._hamming_tables(query[0], tables[0])
    for row in (0, 63, 64, 199):
        distance = kernels._distance(index.stripes, int(index.rank[row]), tables, 0)
        assert distance == np.bitwise_count(index.packed([row]) ^ query).sum()


@pytest.mark.parametrize(("base", "lanes"), [(0, 64), (128, 64), (192, 8)])
def test_padding_is_masked(plain, base, lanes):
    mask = int(kernels._valid(base, 200))
    assert mask == 2**lanes - 1
