"""Every answer of CodeIndex beside a sort of all scores."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldhash.arrays.codes import pack, signs
from coldhash.arrays.products import SparseRows
from coldhash.errors import DataError, SettingError
from coldhash.search import index as index_module
from coldhash.search import kernels
from coldhash.search.index import MAX_BITS, CodeIndex, Search

N_BITS = st.one_of(
    st.sampled_from([1, 8, 63, 64, 65, 128, 248, 254, 255, 256]), st.integers(1, 300)
)
N_ITEMS = st.sampled_from([1, 2, 63, 64, 65, 128, 300, 1000])
EXAMPLES = 10 if numba.config.DISABLE_JIT else 80  # interpreted, the scan takes its time


def random_codes(rng, n, n_bits, distinct=None):
    """Codes as +1 and -1; with few distinct ones, ties are everywhere."""
    codes = signs(rng.standard_normal((n, n_bits)))
    return codes if distinct is None else codes[rng.integers(min(n, distinct), size=n)]


def random_lists(rng, n, n_queries):
    return [rng.permutation(n)[: rng.integers(n + 1)] for _ in range(n_queries)]


def sorted_out(costs, popularity, k, excluded=None, listed=None):
    """The rows of the k smallest costs: ties by popularity, then by place in the catalogue."""
    n = costs.shape[1]
    rows = np.full((len(costs), min(k, n)), -1)
    for query, cost in enumerate(costs):
        allowed = np.full(n, listed is None)
        if listed is not None:
            allowed[listed[query]] = True
        if excluded is not None:
            allowed[excluded[query]] = False
        order = np.lexsort((np.arange(n), -popularity, cost))
        best = order[allowed[order]][: rows.shape[1]]
        rows[query, : len(best)] = best
    return rows


def at(costs, rows, missing):
    """The costs of the rows found."""
    return np.where(rows < 0, missing, np.take_along_axis(costs, np.maximum(rows, 0), axis=1))


def weight_unit(query):
    """The weight of one integer unit: the heaviest four bits just fit the limit."""
    quarters = np.abs(np.pad(query.astype(np.float64), (0, -len(query) % 4))).reshape(-1, 4)
    heaviest = (((quarters[:, 0] + quarters[:, 1]) + quarters[:, 2]) + quarters[:, 3]).max()
    return heaviest / kernels.WEIGHT_LIMIT if heaviest > 0 else 1.0


def integer_costs(codes, queries):
    """The weighted distances that a real query promises: weights rounded to integers."""
    costs = []
    for query in queries.astype(np.float64):
        unit = weight_unit(query)
        weights = np.floor(np.abs(query) / unit + 0.5).astype(np.int64)
        costs.append((codes != signs(query)) @ weights)
    return np.array(costs)


@st.composite
def worlds(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, n_bits = draw(N_ITEMS), draw(N_BITS)
    codes = random_codes(rng, n, n_bits, draw(st.sampled_from([None, 1, 3])))
    popularity = rng.integers(draw(st.sampled_from([1, 3, 1000])), size=n)
    n_queries = draw(st.sampled_from([1, 2, 3, 5, 17, 33]))
    k = draw(st.sampled_from([1, 2, 10, 100, 2000]))
    excluded = random_lists(rng, n, n_queries) if draw(st.booleans()) else None
    listed = random_lists(rng, n, n_queries) if draw(st.booleans()) else None
    return rng, codes, popularity, n_queries, k, excluded, listed


def lists_of(index, lists):
    return SparseRows.of_lists(lists, len(index))


def filters(index, excluded, listed):
    return tuple(None if each is None else lists_of(index, each) for each in (excluded, listed))


@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds(), st.sampled_from([1, 2, 4]))
def test_hamming_is_a_sort_of_all_distances(world, threads):
    rng, codes, popularity, n_queries, k, excluded, listed = world
    index = CodeIndex.of(pack(codes), codes.shape[1], popularity)
    queries = random_codes(rng, n_queries, codes.shape[1])
    costs = (queries[:, None] != codes[None]).sum(axis=2)
    search = Search(*filters(index, excluded, listed), threads=threads)
    rows, distances = index.hamming(pack(queries), k, search)
    expected = sorted_out(costs, popularity, k, excluded, listed)
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(distances, at(costs, expected, -1))


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds(), st.sampled_from([1, 2, 4]), st.sampled_from(["any", "whole", "zero", "one heavy"]))
def test_weighted_is_a_sort_of_all_scores(world, threads, kind):
    rng, codes, popularity, n_queries, k, excluded, listed = world
    index = CodeIndex.of(pack(codes), codes.shape[1], popularity)
    queries = rng.standard_normal((n_queries, codes.shape[1])).astype(np.float32)
    queries = {"any": queries, "whole": np.round(queries), "zero": 0 * queries}.get(kind, queries)
    if kind == "one heavy":
        queries[:, 0] *= 1000
    search = Search(*filters(index, excluded, listed), threads=threads)
    rows, scores = index.weighted(queries, k, search)
    expected = sorted_out(integer_costs(codes, queries), popularity, k, excluded, listed)
    np.testing.assert_array_equal(rows, expected)
    real = at(queries.astype(np.float64) @ codes.T, expected, -np.inf)
    found = expected >= 0
    room = np.broadcast_to(1e-5 * np.abs(queries).sum(axis=1, keepdims=True), found.shape)
    assert (np.abs(scores[found] - real[found]) <= room[found]).all()
    assert (scores[~found] == -np.inf).all()


def random_levels(rng, n, kind):
    """Levels of items, and what they mean; 'flat' gains and steps make ties of different levels."""
    levels = (rng.integers(256, size=n) // rng.integers(1, 256, size=n)).astype(np.uint8)
    gains = np.linspace(0, 2, 256) ** 2
    if kind == "flat":
        gains = np.round(gains)
    elif kind == "none":
        gains = 0 * gains
    elif kind == "tiny":
        gains = 1e-30 * gains
    most = rng.integers(1, 300)
    return levels, gains.astype(np.float32), np.sort(rng.integers(most, size=256)).astype(np.int32)


KINDS = st.sampled_from(["any", "flat", "none", "tiny"])


@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds(), KINDS, st.sampled_from([0, 0.3, 1]), st.sampled_from([1, 2]))
def test_steps_of_levels_join_the_distance(world, kind, popularity, threads):
    rng, codes, counts, n_queries, k, excluded, listed = world
    levels, gains, steps = random_levels(rng, len(codes), kind)
    index = CodeIndex.of(pack(codes), codes.shape[1], counts, levels, gains, steps)
    queries = random_codes(rng, n_queries, codes.shape[1])
    missing = [round(popularity * int(steps[-1] - steps[level])) for level in levels]
    costs = (queries[:, None] != codes[None]).sum(axis=2) + np.array(missing)
    lists = filters(index, excluded, listed)
    search = Search(*lists, threads=threads, popularity=popularity)
    rows, distances = index.hamming(pack(queries), k, search)
    expected = sorted_out(costs, 1000 * levels.astype(int) + counts, k, excluded, listed)
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(distances, at(costs, expected, -1))


def level_scores(codes, queries, levels, gains, popularity):
    """The scores that real queries of items with levels promise, in float64."""
    gain = gains.astype(np.float64)[levels]
    dots = []
    for query, costs in zip(queries, integer_costs(codes, queries), strict=True):
        unit = weight_unit(query)
        total = np.floor(np.abs(query.astype(np.float64)) / unit + 0.5).sum()
        dots.append(unit * (total - 2 * costs))
    power = popularity / 2
    scale = np.array([float(np.float32(math.pow(g, power))) for g in gain])
    return scale * (popularity * gain / (0.5 + power / 2) + np.array(dots))


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(worlds(), KINDS, st.sampled_from([0, 0.3, 1]), st.sampled_from([1, 2]), st.booleans())
def test_gains_of_levels_scale_the_scores(world, kind, popularity, threads, whole):
    rng, codes, counts, n_queries, k, excluded, listed = world
    levels, gains, steps = random_levels(rng, len(codes), kind)
    index = CodeIndex.of(pack(codes), codes.shape[1], counts, levels, gains, steps)
    queries = rng.standard_normal((n_queries, codes.shape[1])) * rng.choice([0, 1e-9, 0.1, 10])
    queries = (np.round(queries) if whole else queries).astype(np.float32)
    scores = level_scores(codes, queries, levels, gains, popularity)
    lists = filters(index, excluded, listed)
    search = Search(*lists, threads=threads, popularity=popularity)
    rows, found = index.weighted(queries, k, search)
    expected = sorted_out(-scores, 1000 * levels.astype(int) + counts, k, excluded, listed)
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(found, at(scores, expected, -np.inf))


@pytest.mark.parametrize("n_bits", [56, 300])
@pytest.mark.parametrize("popularity", [0, 0.3, 1])
def test_levels_of_many_items_and_threads(rng, monkeypatch, n_bits, popularity):
    """Long enough for scans that end early, and for pools that must make room."""
    monkeypatch.setattr(index_module, "SPLIT_GROUPS", 2)
    n = 500 if numba.config.DISABLE_JIT else 20_000
    codes, counts = random_codes(rng, n, n_bits), np.zeros(n, dtype=int)
    levels = (255 / np.sqrt(1 + rng.permutation(n))).astype(np.uint8)
    gains, steps = np.linspace(0, 1, 256, dtype=np.float32), np.arange(256, dtype=np.int32) // 8
    index = CodeIndex.of(pack(codes), n_bits, counts, levels, gains, steps)
    queries = rng.standard_normal((5, n_bits)).astype(np.float32) / n_bits
    scores = level_scores(codes, queries, levels, gains, popularity)
    for k in (1, 10, 300):
        expected = sorted_out(-scores, levels.astype(int), k)
        for n_queries, threads in ((5, 1), (5, 2), (1, 1), (1, 4)):
            search = Search(threads=threads, popularity=popularity)
            rows, found = index.weighted(queries[:n_queries], k, search)
            np.testing.assert_array_equal(rows, expected[:n_queries])
            np.testing.assert_array_equal(found, at(scores, expected, 0)[:n_queries])


def test_levels_that_mean_nothing_are_refused():
    packed, counts, levels = np.zeros((3, 1), np.uint64), np.zeros(3), np.zeros(3, np.uint8)
    gains, steps = np.zeros(256, np.float32), np.zeros(256, np.int32)
    falling, hole = gains - np.arange(256, dtype=np.float32), gains + np.float32(np.nan)
    for wrong in (None, falling, -falling[::-1] - 300, hole, gains[:9], gains.astype(float)):
        with pytest.raises(DataError, match="gains"):
            CodeIndex.of(packed, 10, counts, levels, wrong, steps)
    for wrong in (None, steps - 1, steps + MAX_BITS + 1, steps.astype(np.int64)):
        with pytest.raises(DataError, match="steps"):
            CodeIndex.of(packed, 10, counts, levels, gains, wrong)
    for wrong in (levels[:2], levels.astype(int)):
        with pytest.raises(DataError, match="3 levels"):
            CodeIndex.of(packed, 10, counts, wrong, gains, steps)
    index = CodeIndex.of(packed, 10, counts, levels, gains, steps)
    for popularity in (-0.1, 1.1, np.nan):
        with pytest.raises(SettingError, match="popularity"):
            index.hamming(packed, 1, Search(popularity=popularity))


@pytest.mark.parametrize("n_bits", [64, 100, 128])
def test_real_scores_are_those_of_float64(rng, n_bits):
    codes = random_codes(rng, 20_000, n_bits)
    queries = rng.standard_normal((50, n_bits)).astype(np.float32)
    index = CodeIndex.of(pack(codes), n_bits, np.zeros(len(codes)))
    rows, scores = index.weighted(queries, 10)
    real = queries.astype(np.float64) @ codes.T.astype(np.float64)
    expected = np.argsort(-real, axis=1, kind="stable")[:, :10]
    np.testing.assert_array_equal(rows, expected)
    # each weight is off by half a unit at most, and a unit is 2^-22 of four weights
    np.testing.assert_allclose(scores, np.take_along_axis(real, expected, axis=1), rtol=2e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int64, np.float32, bool])
def test_ties_go_to_the_popular_then_to_the_first(dtype):
    popularity = np.array([0, 1, 0, 1, 1, 0]).astype(dtype)
    index = CodeIndex.of(pack(np.ones((6, 70), dtype=np.int8)), 70, popularity)
    for rows, _ in (
        index.hamming(pack(-np.ones((1, 70), dtype=np.int8)), 6),
        index.weighted(np.ones((1, 70), dtype=np.float32), 6),
    ):
        assert rows.tolist() == [[1, 3, 4, 0, 2, 5]]


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("n_bits", [64, 300])
def test_threads_change_nothing(rng, monkeypatch, n_bits, equal):
    """Neither for chunks of a batch, nor for a lone query split over parts of the items."""
    monkeypatch.setattr(index_module, "SPLIT_GROUPS", 2)
    codes = random_codes(rng, 3001, n_bits, 1 if equal else None)
    index = CodeIndex.of(pack(codes), n_bits, rng.integers(5, size=len(codes)))
    for n_queries in (1, 2, 3, 40):
        vectors = rng.standard_normal((n_queries, n_bits)).astype(np.float32)
        seen = lists_of(index, random_lists(rng, len(codes), n_queries))
        for search, queries in (
            (index.hamming, pack(signs(vectors))),
            (index.weighted, vectors),
        ):
            for k in (100, 5000):
                rows, scores = search(queries, k, Search(seen))
                for threads in (2, 4):
                    again, scores_again = search(queries, k, Search(seen, threads=threads))
                    np.testing.assert_array_equal(again, rows)
                    np.testing.assert_array_equal(scores_again, scores)


def test_a_lone_query_is_split_over_threads(rng, monkeypatch):
    monkeypatch.setattr(index_module, "SPLIT_GROUPS", 2)
    calls, run = [], kernels.scan

    def kernel(*arguments):
        calls.append(arguments[-2:])
        run(*arguments)

    monkeypatch.setattr(kernels, "scan", kernel)
    codes = random_codes(rng, 640, 64)
    index = CodeIndex.of(pack(codes), 64, np.zeros(640))
    index.weighted(codes[:1].astype(np.float32), 3, Search(threads=4))
    assert sorted(calls) == [(0, 4), (1, 4), (2, 4), (3, 4)]


@pytest.mark.parametrize("levels", [False, True])
@pytest.mark.parametrize("share", [0, 0.01, 0.5, 1])
def test_a_subset_is_searched_as_its_list_is(rng, share, levels):
    n_items = 5000
    codes = random_codes(rng, n_items, 40)
    tables = ()
    if levels:
        gains, steps = np.linspace(0, 1, 256, dtype=np.float32), np.arange(256, dtype=np.int32) // 8
        tables = (rng.integers(256, size=n_items).astype(np.uint8), gains, steps)
    index = CodeIndex.of(pack(codes), 40, rng.integers(5, size=n_items), *tables)
    mask = rng.random(n_items) < share
    within = index.subset(mask)
    vectors = rng.standard_normal((9, 40)).astype(np.float32)
    listed = lists_of(index, [np.flatnonzero(mask)] * 9)
    excluded = lists_of(index, [np.flatnonzero(mask)[::3]] * 9)
    for search, queries in ((index.hamming, pack(signs(vectors))), (index.weighted, vectors)):
        rows, scores = search(queries, 20, Search(excluded, within=within))
        expected, expected_scores = search(queries, 20, Search(excluded, listed))
        np.testing.assert_array_equal(rows, expected)
        np.testing.assert_array_equal(scores, expected_scores)
        alone, _ = search(queries[:1], 20, Search(within=within, threads=4))
        np.testing.assert_array_equal(alone, search(queries[:1], 20, Search(within=within))[0])
    with pytest.raises(DataError, match="mask"):
        index.subset(mask[1:])
    with pytest.raises(DataError, match="subset"):
        index.weighted(vectors, 1, Search(within=within[1:]))


def test_a_batch_answers_as_its_queries_do_alone(rng):
    codes = random_codes(rng, 700, 90)
    index = CodeIndex.of(pack(codes), 90, np.zeros(700))
    vectors = rng.standard_normal((37, 90)).astype(np.float32)
    for search, queries in ((index.hamming, pack(signs(vectors))), (index.weighted, vectors)):
        rows, scores = search(queries, 20)
        for i in range(len(queries)):
            alone, alone_scores = search(queries[i : i + 1], 20)
            np.testing.assert_array_equal(alone[0], rows[i])
            np.testing.assert_array_equal(alone_scores[0], scores[i])


def test_calls_from_several_threads_do_not_disturb_each_other(rng):
    codes = random_codes(rng, 5000, 64)
    index = CodeIndex.of(pack(codes), 64, np.zeros(5000))
    batches = [rng.standard_normal((30, 64)).astype(np.float32) for _ in range(12)]
    serial = [index.weighted(batch, 50)[0] for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        both = Search(threads=2)
        together = list(pool.map(lambda batch: index.weighted(batch, 50, both)[0], batches))
    np.testing.assert_array_equal(together, serial)


def test_each_item_nearer_than_all_before():
    """The pool of accepted items must make room again and again."""
    codes = np.where(np.tril(np.ones((1000, 1000))), 1, -1)[:, ::-1]
    index = CodeIndex.of(pack(codes), 1000, np.zeros(1000))
    query = np.ones((1, 1000), dtype=np.int8)
    assert index.hamming(pack(query), 3)[0].tolist() == [[999, 998, 997]]
    assert index.weighted(query.astype(np.float32), 3)[0].tolist() == [[999, 998, 997]]


def test_the_longest_codes_do_not_overflow(rng):
    """Far items first, and weights for which as much as possible is lost in rounding."""
    codes = random_codes(rng, 300, MAX_BITS)
    codes[:250] = -1
    index = CodeIndex.of(pack(codes), MAX_BITS, np.zeros(300))
    query = np.tile(np.float32([63.995, 63.015, 0, 0]), (1, MAX_BITS // 4))
    query[0, :2] = 63.75
    for vectors in (query, np.ones_like(query)):
        expected = sorted_out(integer_costs(codes, vectors), np.zeros(300), 60)
        np.testing.assert_array_equal(index.weighted(vectors, 60)[0], expected)
        np.testing.assert_array_equal(index.weighted(vectors, 20)[0], expected[:, :20])
    np.testing.assert_array_equal(index.hamming(pack(signs(query)), 60)[0], expected)
    with pytest.raises(SettingError, match="2049"):
        CodeIndex.of(np.zeros((3, 33), dtype=np.uint64), MAX_BITS + 1, np.zeros(3))


def test_fewer_where_fewer_exist(rng):
    codes = random_codes(rng, 5, 10)
    index = CodeIndex.of(pack(codes), 10, np.zeros(5))
    excluded, listed = lists_of(index, [[0, 1]]), lists_of(index, [[4, 1, 4]])
    for search, query, missing in (
        (index.hamming, pack(codes[:1]), -1),
        (index.weighted, codes[:1].astype(np.float32), -np.inf),
    ):
        rows, scores = search(query, 7, Search(excluded, listed))
        assert rows.tolist() == [[4, -1, -1, -1, -1]]
        assert (scores[0, 1:] == missing).all()
        assert (search(query, 7, Search(candidates=lists_of(index, [[]])))[0] == -1).all()


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("threads", [1, 4])
def test_nothing_asked_or_nothing_there(rng, monkeypatch, threads, plain):
    if plain:
        monkeypatch.setattr(index_module, "load_kernels", lambda *_: None)
    codes = random_codes(rng, 200, 64)
    full = CodeIndex.of(pack(codes), 64, np.zeros(200))
    empty = CodeIndex.of(pack(codes[:0]), 64, np.zeros(0))
    none = np.zeros((0, 1), dtype=np.uint64)
    assert full.hamming(none, 3, Search(threads=threads))[0].shape == (0, 3)
    search = Search(lists_of(full, []), threads=threads)
    assert full.weighted(np.zeros((0, 64)), 3, search)[1].shape == (0, 3)
    assert empty.hamming(pack(codes[:2]), 3, Search(threads=threads))[0].shape == (2, 0)
    assert empty.weighted(np.ones((2, 64)), 3, Search(threads=threads))[0].shape == (2, 0)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 1e300])
def test_what_is_no_number_is_refused(wrong):
    index = CodeIndex.of(np.zeros((3, 1), dtype=np.uint64), 10, np.zeros(3))
    queries = np.ones((4, 10))
    queries[2, 3] = wrong
    for other in (1.0, -wrong):  # infinities of both signs have no sum
        queries[0, 1] = other
        with pytest.raises(DataError, match="NaN"):
            index.weighted(queries, 2)


def test_impossible_requests_are_refused():
    index = CodeIndex.of(np.zeros((3, 1), dtype=np.uint64), 10, np.zeros(3))
    codes, vectors = np.zeros((2, 1), dtype=np.uint64), np.ones((2, 10))
    for search, queries in ((index.hamming, codes), (index.weighted, vectors)):
        with pytest.raises(SettingError, match="k=0"):
            search(queries, 0)
        with pytest.raises(SettingError, match="threads=0"):
            search(queries, 1, Search(threads=0))
        with pytest.raises(DataError, match=r"lists of \(1, .* for 2 queries"):
            search(queries, 1, Search(lists_of(index, [[0]])))
        with pytest.raises(DataError, match="10"):
            search(np.zeros((2, 3), dtype=queries.dtype), 1)
        with pytest.raises(DataError, match="10"):
            search(queries[0], 1)
    with pytest.raises(DataError, match="int64"):
        index.hamming(codes.astype(np.int64), 1)
    for rows in ([3], [-1]):
        with pytest.raises(DataError, match="outside 0 to 2"):
            lists_of(index, [[0], rows])
    with pytest.raises(DataError, match="4 codes"):
        CodeIndex.of(codes, 10, np.zeros(4))


@settings(max_examples=30, deadline=None)
@given(N_ITEMS, N_BITS, st.integers(0, 2**32))
def test_codes_come_back(n, n_bits, seed):
    rng = np.random.default_rng(seed)
    codes = random_codes(rng, n, n_bits)
    index = CodeIndex.of(pack(codes), n_bits, rng.integers(4, size=n))
    some = rng.integers(n, size=5)
    assert len(index) == n
    np.testing.assert_array_equal(index.packed(), pack(codes))
    np.testing.assert_array_equal(index.packed(some), pack(codes[some]))
    np.testing.assert_array_equal(index.rows(), codes)
    np.testing.assert_array_equal(index.rows(some), codes[some])


def test_answers_share_no_memory_with_what_was_given(rng):
    codes = random_codes(rng, 200, 64)
    packed, popularity = pack(codes), np.zeros(200)
    index = CodeIndex.of(packed, 64, popularity)
    vectors = codes[:3].astype(np.float32)
    queries = pack(codes[:3])
    first = index.hamming(queries, 5)
    kept = [values.copy() for values in first]
    second = index.hamming(queries, 5)
    for values in (*first, *second, *index.weighted(vectors, 5), index.packed(), index.rows()):
        for given_ in (packed, popularity, queries, vectors, index.stripes, index.order):
            assert not np.shares_memory(values, given_)
    second[0][:] = 0
    packed[:] = 0
    np.testing.assert_array_equal(first[0], kept[0])
    np.testing.assert_array_equal(index.rows(), codes)


def test_inputs_are_read_whatever_their_layout(rng):
    codes = random_codes(rng, 300, 128)
    index = CodeIndex.of(np.asfortranarray(pack(codes)), 128, np.arange(300)[::-1])
    vectors = rng.standard_normal((6, 128))
    queries = pack(signs(vectors))
    for search, given_ in ((index.hamming, queries), (index.weighted, vectors)):
        rows, _ = search(given_, 5)
        np.testing.assert_array_equal(search(np.asfortranarray(given_), 5)[0], rows)
        np.testing.assert_array_equal(search(given_[::2], 5)[0], rows[::2])
        given_.flags.writeable = False
        np.testing.assert_array_equal(search(given_, 5)[0], rows)


@pytest.mark.parametrize("n_bits", [12, 64, 300])
@pytest.mark.parametrize("leveled", [False, True])
def test_without_compiled_code_answers_are_the_same_bits(rng, monkeypatch, n_bits, leveled):
    codes = random_codes(rng, 150, n_bits)
    levels, gains = rng.integers(256, size=150).astype(np.uint8), np.linspace(0, 0.7, 256)
    tables = (levels, gains.astype(np.float32), np.arange(256, dtype=np.int32) // 16)
    index = CodeIndex.of(pack(codes), n_bits, np.zeros(150), *(tables if leveled else ()))
    vectors = rng.standard_normal((3, n_bits)).astype(np.float32)
    vectors[2] = 0
    queries = {"hamming": pack(signs(vectors)), "weighted": vectors}
    some, others = (lists_of(index, random_lists(rng, 150, 3)) for _ in range(2))
    lists = {"excluded": some, "candidates": others}
    filters = [{}, *({name: each} for name, each in lists.items()), lists]
    filters += [{**each, "within": index.subset(rng.random(150) < 0.4)} for each in filters]
    searches = [Search(**each) for each in filters]
    cases = [(name, k, each) for name in queries for k in (1, 10, 200) for each in searches]
    answers = []
    for plain in (False, True):
        if plain:
            monkeypatch.setattr(index_module, "load_kernels", lambda *_: None)
        answers.append(
            [getattr(index, name)(queries[name], k, search) for name, k, search in cases]
        )
    for compiled, plain in zip(*answers, strict=True):
        for ours, again in zip(compiled, plain, strict=True):
            np.testing.assert_array_equal(ours, again, strict=True)
