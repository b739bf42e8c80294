"""The exact scan for the k best of many codes: Hamming distance, or a real-valued query.

Both are one computation, a weighted Hamming distance D = Σ_b w_b [item bit ≠ query bit]: Hamming
has w = 1; a real query has w = |q|, because Σ_b q_b d_b (d = ±1) equals Σ_b |q_b| - 2 D. Items have
levels: the score of an item of level l is

    gains[l] (bases[l] + unit (half - D)),

with unit = 1 and half = 0 for Hamming, unit = 2 and half = Σ_b |q_b| / 2 for a real query. Without
levels there is one, with a gain of 1 and a base of 0. Gains and bases do not decrease with the
level.

Items are stored in the order in which ties are broken, the highest level first, in groups of 64,
one row of 64 bytes per byte of the code: `stripes[group, byte, lane]`. A table of 16 entries per
half byte then gives the distances of 32 items per shuffle (`lanes.py`).

Scores are compared as costs: how far they are below the highest possible one, in units of a bucket,
which is linear in D. Counts of accepted items by bucket yield a limit of the cost, at least the
k-th lowest so far. It gives each group a limit of the distance: a group with no item below it costs
one comparison, and once even distance 0 is not enough, neither is it for any later group, whose
levels are lower. A real query is scanned with tables of 7 bits, rounded down, so that no item is
missed: what is counted is the cost with the largest error there is, and the costs of what is left
in the end are computed from the weights before rounding. Positions come in ascending order, so an
item at the limit is refused.

Everything is compiled once: one kernel with one type of each argument serves both kinds of queries.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np
from numba import njit

from coldhash.arrays.compiled import compiled
from coldhash.errors import DataError
from coldhash.search.index import GROUP, NOT_FINITE, ROUNDING, TILE, WEIGHT_LIMIT
from coldhash.search.lanes import COUNTS_BITS, allocate, lowest_bit, release, sum_lanes

QUERIES = 16  # queries that share one pass over a block of items
BLOCK_BYTES = 1 << 14  # item bytes per block: stays in the first-level cache
BUCKETS = 512  # buckets of scores of a real query (a Hamming query has one per distance)
TINY = 1e-9  # in buckets: more than the error of a computed cost
WIDE_TILE = TILE // 2  # of queries whose sums take 16 bits
NARROW_BYTES = 31  # of codes whose Hamming distances fit a byte

# Per query of a pass: rounded table (scanned), the same before rounding (empty for Hamming), number
# of accepted items by bucket, their costs and positions, the slots below, and the limit of rounded
# distances; for all: sums and hits of a tile, and what it takes to sort a pool; the last is a mask
# for each query again.
Pools = namedtuple(
    "Pools",
    "rounded exact counts costs positions state terms limits sums hits best found ends masks",
)
BOUND = 0  # state: bucket of the k-th best so far
WITHIN = 1  # items accepted up to that bucket
SIZE = 2  # number of accepted items in the pool
UNIT, HALF = 0, 1  # terms: of the score
STEP, ERROR = 2, 3  # what 1 of a rounded distance takes from a score of gain 1, and rounding adds
TOP, SCALE = 4, 5  # the highest score, and the number of buckets per score
SLACK = 6  # 0 if all costs of a bucket are equal, else 1 and a little for errors
LIMIT = 7  # costs from here on are refused

# without counts of references to arrays: all belong to the caller, or come from `allocate`
OPTIONS = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
internal, inlined = njit(**OPTIONS), njit(forceinline=True, **OPTIONS)

_DIFFERENT = np.array([[(i ^ j).bit_count() for i in range(16)] for j in range(16)], np.uint8)


@internal
def _hamming_tables(words, rounded, terms):
    """Compute rounded[half byte, value]: the bits in which value differs from the query's.

    Where an instruction counts the bits of bytes, a short query is kept as it is, byte by byte.
    """
    n_halves = rounded.shape[0]
    if COUNTS_BITS and n_halves <= 2 * NARROW_BYTES:
        for byte in range(n_halves // 2):
            rounded[byte // 16, byte % 16] = words[byte // 8] >> np.uint64(8 * (byte % 8))
        n_halves = 0
    for half in range(n_halves):
        own = np.int64(words[half // 16] >> np.uint64(4 * (half % 16))) & 15
        for value in range(16):
            rounded[half, value] = _DIFFERENT[own, value]
    terms[:] = 0
    terms[UNIT] = terms[STEP] = terms[SCALE] = 1
    terms[LIMIT] = np.inf


@internal
def _weighted_tables(query, worth, rounded, exact, terms):
    """Compute exact[half byte, value]: the weight of bits that differ from the query's signs.

    The heaviest half byte just fits WEIGHT_LIMIT. Return whether the query is finite.
    """
    heaviest, length, total, error = 0.0, 0.0, 0, 0
    for start in range(0, query.shape[0], 4):
        weight = 0.0
        for bit in range(start, min(start + 4, query.shape[0])):
            weight += abs(np.float64(query[bit]))
        heaviest = max(heaviest, weight)
        length += weight
    if not length < np.inf:
        return False
    unit = heaviest / WEIGHT_LIMIT if heaviest > 0 else 1.0
    for half in range(exact.shape[0]):
        row, worst = exact[half], 0
        row[0] = 0
        for j in range(4):
            bit = 4 * half + j
            value = np.float64(query[bit]) if bit < query.shape[0] else 0.0
            weight = np.int32(np.floor(abs(value) / unit + 0.5))
            total += weight
            for known in range(1 << j):
                agrees = row[known]
                row[known + (1 << j)] = agrees + (weight if value < 0 else 0)
                row[known] = agrees + (0 if value < 0 else weight)
        for value in range(16):
            rounded[half, value] = row[value] >> ROUNDING
            worst = max(worst, row[value] & ((1 << ROUNDING) - 1))
        error += worst
    whole, base, gain = unit * total, worth[0, -1], worth[1, -1]
    top, bottom = gain * (base + whole), -gain * whole
    terms[UNIT], terms[HALF] = 2 * unit, total / 2
    terms[STEP], terms[ERROR] = 2 * unit * (1 << ROUNDING), 2 * unit * error
    terms[TOP], terms[SCALE] = top, BUCKETS / (top - bottom) if top > bottom else 1.0
    terms[SLACK], terms[LIMIT] = 1 + TINY, np.inf
    return True


@inlined
def _cost_terms(worth, level, terms, query):
    """Return the cost at distance 0, what 1 of a rounded distance adds, and the largest error."""
    base, gain = worth[0, level], worth[1, level] * terms[query, SCALE]
    best = gain * (base + terms[query, UNIT] * terms[query, HALF])
    start = terms[query, TOP] * terms[query, SCALE] - best
    return start, gain * terms[query, STEP], gain * terms[query, ERROR]


@inlined
def _level_limit(worth, level, terms, query, widest):
    """Return the first rounded distance at which no cost is below the limit."""
    start, step, _ = _cost_terms(worth, level, terms, query)
    room = terms[query, LIMIT] - start
    if step == 0:
        return widest if room > 0 else 0
    return np.int64(max(0.0, min(np.ceil(room / step), widest)))


@inlined
def _group_limit(worth, high, low, terms, query, widest):
    """Return the limit for levels from high to low: scores are convex in the gain."""
    limit = _level_limit(worth, high, terms, query, widest)
    if low == high:
        return limit
    return max(limit, _level_limit(worth, low, terms, query, widest))


@inlined
def _drop(query, pools):
    """Drop what is above the limit from a pool; return how many are left."""
    costs, positions, limit = pools.costs[query], pools.positions[query], pools.terms[query, LIMIT]
    kept = np.uint64(0)
    for i in range(pools.state[query, SIZE]):  # without a branch, which would often be mispredicted
        cost = costs[i]
        costs[kept], positions[kept] = cost, positions[i]
        kept += np.uint64(cost <= limit)
    pools.state[query, SIZE] = kept
    return np.int64(kept)


@internal
def _select(query, pools, stripes, levels, worth):
    """Sort a pool by cost before rounding, then by position; return how many there are.

    `pools.best` has minus their scores and `pools.found` their positions. Buckets leave little to
    the Shell sort, which for few is an insertion sort.
    """
    state, terms, table = pools.state[query], pools.terms[query], pools.exact[query]
    costs, positions, n = pools.costs[query], pools.positions[query], _drop(query, pools)
    best, found, ends, last = pools.best, pools.found, pools.ends, state[BOUND] + 1
    top, scale = terms[TOP], terms[SCALE]
    ends[: last + 2] = 0
    for i in range(n):
        if table.shape[0] > 0:
            position, distance = np.int64(positions[i]), 0
            for byte in range(stripes.shape[1]):
                code = stripes[position // GROUP, byte, position % GROUP]
                distance += table[2 * byte, code & 15] + table[2 * byte + 1, code >> 4]
            level = np.int64(levels[position]) if levels.shape[0] > 0 else np.int64(0)
            away = terms[UNIT] * (terms[HALF] - distance)
            costs[i] = -worth[1, level] * (worth[0, level] + away)
        ends[min(np.int64((top + costs[i]) * scale), last) + 1] += 1
    gap = 1  # more than the largest bucket holds, if it holds different costs
    for bucket in range(1, last + 2):
        if terms[SLACK] > 0:
            gap = max(gap, ends[bucket] + 1)
        ends[bucket] += ends[bucket - 1]
    for i in range(n):
        bucket = min(np.int64((top + costs[i]) * scale), last)
        best[ends[bucket]], found[ends[bucket]] = costs[i], positions[i]
        ends[bucket] += 1
    while gap > 1:
        gap = (5 * gap - 1) // 11 if gap > 16 else 1
        for i in range(gap, n):
            value, position, j = best[i], found[i], i
            while j >= gap:
                other = best[j - gap]
                if other < value or (other == value and found[j - gap] < position):
                    break
                best[j], found[j] = other, found[j - gap]
                j -= gap
            best[j], found[j] = value, position
    return n


@internal
def _shrink(query, pools, k, stripes, levels, worth):
    """Keep the k best of a pool."""
    n, terms = _select(query, pools, stripes, levels, worth), pools.terms[query]
    pools.state[query, SIZE] = min(k, n)
    for i in range(min(k, n)):
        pools.costs[query, i] = (terms[TOP] + pools.best[i]) * terms[SCALE]
        pools.positions[query, i] = pools.found[i]
    if n >= k:
        terms[LIMIT] = min(terms[LIMIT], pools.costs[query, k - 1] + TINY)


@inlined
def _accept(hits, base, level, row, levels, worth, pools, query, k):
    """Add the items below the limit to the pool, in tie order; return if that lowered it."""
    counts, costs, positions, state, terms = pools[2:7]
    bound, within, size = state[query, BOUND], state[query, WITHIN], np.uint64(state[query, SIZE])
    limit, last = terms[query, LIMIT], np.uint64(counts.shape[1] - 1)
    start, step, error = _cost_terms(worth, level, terms, query)
    while hits != 0:  # places are unsigned, or each would be checked for being negative
        lane = lowest_bit(hits)
        hits &= hits - np.uint64(1)
        position = np.uint64(base) + lane
        if levels.shape[0] > 0 and levels[position] != level:
            level = np.int64(levels[position])
            start, step, error = _cost_terms(worth, level, terms, query)
        cost = start + step * np.int64(pools.sums[row, lane])
        if cost >= limit:
            continue
        costs[query, size], positions[query, size] = cost, position
        size += np.uint64(1)
        bucket = min(np.uint64(np.int64(cost + error)), last)
        counts[query, bucket] += 1
        within += np.int64(bucket) <= bound
    while within - counts[query, bound] >= k:
        within -= counts[query, bound]
        bound -= 1
    state[query, BOUND], state[query, WITHIN], state[query, SIZE] = bound, within, np.int64(size)
    if within < k or bound + terms[query, SLACK] >= limit:
        return False
    terms[query, LIMIT] = bound + terms[query, SLACK]
    return True


@inlined
def _scan(stripes, levels, worth, allowed, part, parts, pools, count, tile, k):
    """Scan every parts-th block of groups, from block `part` on, for the first `count` queries.

    A block of items stays in cache for all tiles of queries.
    """
    n_groups, n_bytes, n_items = stripes.shape[0], stripes.shape[1], levels.shape[0]
    rounded, terms = pools.rounded, pools.terms
    narrow = pools.exact.shape[1] == 0 and n_bytes <= NARROW_BYTES
    limits, sums, hits, masks = pools.limits, pools.sums, pools.hits, pools.masks
    widest, high, low = np.int64(255 if narrow else 65535), np.int64(0), np.int64(0)
    limits[:count], limits[count:] = widest, 0
    step = max(1, BLOCK_BYTES // (n_bytes * GROUP))
    for first in range(part * step, n_groups, parts * step):
        ended = 0  # queries for which no later item can be below the limit
        for query in range(0, count, tile):
            mine, stale = limits[query : query + tile], True
            for group in range(first, min(first + step, n_groups)):
                base = group * GROUP
                if allowed[group] == 0:
                    continue
                if n_items > 0:
                    best = np.int64(levels[base])
                    worst = np.int64(levels[min(base + GROUP, n_items) - 1])
                    if stale or high != best or low != worst:
                        stale, high, low, some = False, best, worst, False
                        for i in range(min(tile, count - query)):
                            mine[i] = _group_limit(worth, high, low, terms, query + i, widest)
                            some |= mine[i] > 0
                        if not some:
                            ended += tile
                            break
                if tile == TILE:
                    found = sum_lanes(TILE, 1, stripes, group, rounded, query, mine, sums, hits)
                elif tile > 1:
                    found = sum_lanes(
                        WIDE_TILE, 2, stripes, group, rounded, query, mine, sums, hits
                    )
                elif narrow:
                    found = sum_lanes(1, 1, stripes, group, rounded, query, mine, sums, hits)
                else:
                    found = sum_lanes(1, 2, stripes, group, rounded, query, mine, sums, hits)
                if found == 0:
                    continue
                for i in range(tile):
                    own = query + i
                    below = hits[i] & (masks[own, group] if masks.shape[0] > 0 else allowed[group])
                    if below == 0:
                        continue
                    room = pools.costs.shape[1]
                    if pools.state[own, SIZE] + GROUP > room and 2 * _drop(own, pools) > room:
                        _shrink(own, pools, k, stripes, levels, worth)
                    if _accept(below, base, high, i, levels, worth, pools, own, k):
                        mine[i] = _group_limit(worth, high, low, terms, own, widest)
        if ended >= count:
            break


@compiled(**OPTIONS)
def search(
    codes, reals, rows, distances, scores, stripes, order, levels, worth, allowed,
    starts, positions, listed, part, parts,
):  # fmt: skip
    """Find the best items of packed queries (uint64[n_queries, n_words]), or of real ones.

    Of every parts-th block of items from block `part` on.
    `order` turns positions into rows of the catalogue, `levels` (by position) is empty if all items
    are of level 0; `worth` has the base and the gain of each level. `allowed` has a bit for each
    position that counts; lists of positions by query, in any order, say which do not, or, `listed`,
    which alone do. Real queries (float32[n_queries, n_bits]) have `scores`, packed `distances`;
    the other array is empty.
    """
    n_queries, k, n_bytes = rows.shape[0], rows.shape[1], stripes.shape[1]
    by_code, n_groups = codes.shape[0] > 0, allowed.shape[0]
    width = 1 if listed else min(max(1, n_queries), QUERIES)
    tile = 1 if width == 1 else TILE if by_code and n_bytes <= NARROW_BYTES else WIDE_TILE
    room, height = 4 * k + 2 * GROUP, width + tile - 1
    n_buckets = 8 * n_bytes + 1 - np.int64(worth[0, 0]) if by_code else BUCKETS
    forms = (
        (np.uint8, height, 2 * n_bytes, 16),
        (np.int32, height, 0 if by_code else 2 * n_bytes, 16),
        (np.int32, height, n_buckets),
        (np.float64, height, room),
        (np.int32, height, room),
        (np.int64, height, 3),
        (np.float64, height, 8),
        (np.int64, height + 1),
        (np.uint16, tile, GROUP),
        (np.uint64, tile),
        (np.float64, room),
        (np.int32, room),
        (np.int32, n_buckets + 2),
        (np.uint64, height if starts.shape[0] > 0 else 0, n_groups),
    )
    pools = Pools(*allocate(forms))
    masks = pools.masks  # of the positions that count for each query, if it has lists
    for begin in range(0, n_queries, width):
        count = min(width, n_queries - begin)
        for i in range(count):
            terms, state, query = pools.terms[i], pools.state[i], begin + i
            if by_code:
                _hamming_tables(codes[query], pools.rounded[i], terms)
            elif not _weighted_tables(reals[query], worth, pools.rounded[i], pools.exact[i], terms):
                release(pools.rounded.ctypes)
                raise DataError(NOT_FINITE)
            pools.counts[i] = 0
            state[:] = 0
            state[BOUND] = n_buckets - 1
            if masks.shape[0] > 0:
                for group in range(n_groups):
                    masks[i, group] = np.uint64(0) if listed else allowed[group]
                for position in positions[starts[query] : starts[query + 1]]:
                    at = np.uint64(position)
                    word, bit = at // np.uint64(GROUP), np.uint64(1) << at % np.uint64(GROUP)
                    masks[i, word] = masks[i, word] | bit if listed else masks[i, word] & ~bit
        some = masks[0] if listed else allowed
        _scan(stripes, levels, worth, some, part, parts, pools, count, tile, k)
        for i in range(count):
            query, n = begin + i, _select(i, pools, stripes, levels, worth)
            for j in range(k):
                exists = j < n
                rows[query, j] = order[pools.found[j]] if exists else -1
                if by_code:
                    distances[query, j] = np.int32(pools.best[j]) if exists else -1
                else:
                    scores[query, j] = -pools.best[j] if exists else -np.inf
    release(pools.rounded.ctypes)


# called without numba's look at the arguments, which takes a while beside a small catalogue
TYPES = """uint64[:,::1], float32[:,::1], int32[:,::1], int32[:,::1], float64[:,::1],
uint8[:,:,::1], int32[::1], uint8[::1], float64[:,::1], uint64[::1],
int64[::1], int32[::1], boolean, int64, int64"""
scan = search.compile(f"void({TYPES})") if hasattr(search, "compile") else search
