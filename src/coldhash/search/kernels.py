"""The exact scan for the k best of many codes: Hamming distance, or a real-valued query.

Both are one computation, a weighted Hamming distance D = Σ_b w_b [item bit ≠ query bit]: Hamming
has w = 1; a real query has w = |q|, because Σ_b q_b d_b (d = ±1) equals Σ_b |q_b| - 2 D. Items have
levels: the score of an item of level l is

    gains[l] (bases[l] + unit (half - D)),

with unit = 1 and half = 0 for Hamming (in integers), unit = 2 and half = Σ_b |q_b| / 2 for a real
query. Without levels there is one, with a gain of 1 and a base of 0. Gains and bases do not
decrease with the level.

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
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from coldhash.arrays.compiled import compiled
from coldhash.search.lanes import lowest_bit, sums_one, sums_tile
from coldhash.search.plain import GROUP, ROUNDING, TILE, WEIGHT_LIMIT

QUERIES = 16  # queries that share one pass over a block of items
BLOCK_BYTES = 1 << 14  # item bytes per block: stays in the first-level cache
BUCKETS = 512  # buckets of scores of a real query (a Hamming query has one per distance)
FEW = 16  # scores up to which insertion is the fastest sort
TINY = 1e-9  # in buckets: more than the error of a computed cost

# What is scanned: every parts-th block of groups of stripes from block `part` on, of which
# `allowed` has a bit for each item of a group that counts, or only the listed positions; filters by
# query as (starts, sorted positions). `order` turns positions into rows of the catalogue, `levels`
# (by position) is empty if all items are of level 0; `worth` has the base and the gain of each
# level.
Items = namedtuple(
    "Items",
    "stripes order levels worth allowed part parts excluded_starts excluded listed_starts listed",
)
# Per query of a pass: rounded table (scanned), the same before rounding (empty for Hamming), number
# of accepted items by bucket, their costs and positions, and the slots below.
Pools = namedtuple("Pools", "rounded exact counts costs positions state terms")
BOUND = 0  # state: bucket of the k-th best so far
WITHIN = 1  # items accepted up to that bucket
SIZE = 2  # number of accepted items in the pool
CURSOR, STOP = 3, 4  # range of the excluded positions not yet passed
UNIT, HALF = 0, 1  # terms: of the score
STEP, ERROR = 2, 3  # what 1 of a rounded distance takes from a score of gain 1, and rounding adds
TOP, SCALE = 4, 5  # the highest score, and the number of buckets per score
SLACK = 6  # 0 if all costs of a bucket are equal, else 1 and a little for errors
LIMIT = 7  # costs from here on are refused

# A call passes every array field by field, and counts references to it unless all that it calls is
# inlined: what runs for each group or item is inlined by LLVM. No division raises an error.
internal = compiled(nogil=True, internal=True)
inlined = compiled(nogil=True, internal=True, error_model="numpy", forceinline=True)

_POPCOUNT = np.array([bin(value).count("1") for value in range(16)], np.uint8)
_HAMMING_TERMS = np.array([1, 0, 1, 0, 0, 1, 0, 1 << 62])


@compiled(nogil=True)
def _hamming_tables(words, rounded):
    """Compute rounded[half byte, value]: the bits in which value differs from the query's."""
    for half in range(rounded.shape[0]):
        own = np.int64(words[half // 16] >> np.uint64(4 * (half % 16))) & 15
        for value in range(16):
            rounded[half, value] = _POPCOUNT[value ^ own]


@compiled(nogil=True)
def _weight_unit(query):
    """Return the weight of one integer unit: the heaviest half byte just fits WEIGHT_LIMIT."""
    heaviest = 0.0
    for start in range(0, query.shape[0], 4):
        weight = 0.0
        for bit in range(start, min(start + 4, query.shape[0])):
            weight += abs(np.float64(query[bit]))
        heaviest = max(heaviest, weight)
    return heaviest / WEIGHT_LIMIT if heaviest > 0 else 1.0


@compiled(nogil=True)
def _weighted_tables(query, unit, rounded, exact):
    """Compute exact[half byte, value]: the weight of bits that differ from the query's signs.

    Return the total weight, and the most that rounding takes from a distance.
    """
    total, error = 0, 0
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
    return total, error


@compiled(nogil=True)
def _weighted_terms(unit, total, error, base, gain, terms):
    """Compute the terms of a real query; base and gain are the highest there are."""
    whole = unit * total
    top, bottom = gain * (base + whole), -gain * whole
    terms[UNIT], terms[HALF] = 2 * unit, total / 2
    terms[STEP], terms[ERROR] = 2 * unit * (1 << ROUNDING), 2 * unit * error
    terms[TOP], terms[SCALE] = top, BUCKETS / (top - bottom) if top > bottom else 1.0
    terms[SLACK], terms[LIMIT] = 1 + TINY, np.inf


@inlined
def _distance(stripes, position, table, query):
    """Compute the distance of one item, by the rounded or the exact table."""
    group, lane = position // GROUP, position % GROUP
    total = 0
    for byte in range(stripes.shape[1]):
        code = stripes[group, byte, lane]
        low, high = table[query, 2 * byte, code & 15], table[query, 2 * byte + 1, code >> 4]
        total += np.int64(low) + np.int64(high)
    return total


@inlined
def _cost_terms(worth, level, terms, query):
    """Return the cost at distance 0, what 1 of a rounded distance adds, and the largest error."""
    base, gain = worth[0, level], worth[1, level] * terms[query, SCALE]
    best = gain * (base + terms[query, UNIT] * terms[query, HALF])
    start = terms[query, TOP] * terms[query, SCALE] - best
    return start, gain * terms[query, STEP], gain * terms[query, ERROR]


@inlined
def _bucket(cost, n_buckets):
    return min(np.int64(cost), n_buckets - 1)


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


@internal
def _exact_costs(items, query, pools):
    """Compute minus the scores of all items in the pool, before rounding."""
    terms, costs = pools.terms[query], np.empty(pools.state[query, SIZE], pools.costs.dtype)
    for i in range(costs.shape[0]):
        position = np.int64(pools.positions[query, i])
        level = np.int64(items.levels[position]) if items.levels.shape[0] > 0 else np.int64(0)
        distance = _distance(items.stripes, position, pools.exact, query)
        away = terms[UNIT] * (terms[HALF] - distance)
        costs[i] = -items.worth[1, level] * (items.worth[0, level] + away)
    return costs


@inlined
def _make_starts(counts):
    """Turn the numbers of items in buckets into where each bucket starts."""
    start = 0
    for bucket in range(counts.shape[0]):
        counts[bucket], start = start, start + counts[bucket]


@internal
def _merge_sort(costs, places):
    """Sort costs and their places; equal costs stay in order."""
    n, width = costs.shape[0], 1
    other_costs, other_places = np.empty_like(costs), np.empty_like(places)
    while width < n:
        for begin in range(0, n, 2 * width):
            middle, end = min(begin + width, n), min(begin + 2 * width, n)
            left, right = begin, middle
            for i in range(begin, end):
                if right == end or (left < middle and costs[left] <= costs[right]):
                    other_costs[i], other_places[i] = costs[left], places[left]
                    left += 1
                else:
                    other_costs[i], other_places[i] = costs[right], places[right]
                    right += 1
        for i in range(n):
            costs[i], places[i] = other_costs[i], other_places[i]
        width *= 2


@internal
def _sort(costs, top, scale):
    """Return costs in ascending order, and the place of each; equal costs stay in order.

    Most buckets hold a cost or two: three times as fast as a sort of all costs.
    """
    n, ends = costs.shape[0], np.zeros(BUCKETS, np.int32)
    for cost in costs:
        ends[_bucket((top + cost) * scale, BUCKETS)] += 1
    _make_starts(ends)
    best, places = np.empty_like(costs), np.empty(n, np.int32)
    for i in range(n):
        bucket = _bucket((top + costs[i]) * scale, BUCKETS)
        best[ends[bucket]], places[ends[bucket]] = costs[i], i
        ends[bucket] += 1
    begin = np.int64(0)
    for end in ends:
        if end - begin > FEW:
            _merge_sort(best[begin:end], places[begin:end])
        begin = end
    for i in range(1, n):  # within buckets, and over the rounding errors of their limits
        cost, place, j = best[i], places[i], i
        while j > 0 and best[j - 1] > cost:
            best[j], places[j] = best[j - 1], places[j - 1]
            j -= 1
        best[j], places[j] = cost, place
    return best, places


@internal
def _keep(query, pools, costs, limit, n_equal):
    """Keep items with costs below the limit in the pool, and the first n_equal at it."""
    kept, own, positions = 0, pools.costs[query], pools.positions[query]
    for i in range(pools.state[query, SIZE]):
        if costs[i] < limit or (costs[i] == limit and n_equal > 0):
            n_equal -= costs[i] == limit
            own[kept], positions[kept] = own[i], positions[i]
            kept += 1
    pools.state[query, SIZE] = kept


@internal
def _compact(items, query, pools, k):
    """Drop what is above the limit; if that makes little room, all but the k best."""
    costs, terms = pools.costs[query], pools.terms[query]
    _keep(query, pools, costs, terms[LIMIT], costs.shape[0])
    if 2 * pools.state[query, SIZE] > costs.shape[0]:
        exact = _exact_costs(items, query, pools)
        last, n_equal = _sort(exact, terms[TOP], terms[SCALE])[0][k - 1], k
        for cost in exact:
            n_equal -= cost < last
        _keep(query, pools, exact, last, n_equal)
        terms[LIMIT] = min(terms[LIMIT], (terms[TOP] + last) * terms[SCALE] + TINY)


@inlined
def _accept(hits, first, listed, sums, row, items, level, pools, query, k):
    """Add the items below the limit to the pool, in tie order; return if that lowered it."""
    _, _, counts, costs, positions, state, terms = pools
    levels, excluded = items.levels, items.excluded
    bound, within, size = state[query, BOUND], state[query, WITHIN], state[query, SIZE]
    cursor, stop, limit = state[query, CURSOR], state[query, STOP], terms[query, LIMIT]
    start, step, error = _cost_terms(items.worth, level, terms, query)
    while hits != 0:
        lane = np.int64(lowest_bit(hits))
        hits &= hits - np.uint64(1)
        position = np.int64(listed[first + lane]) if listed.shape[0] > 0 else first + lane
        if levels.shape[0] > 0 and levels[position] != level:
            level = np.int64(levels[position])
            start, step, error = _cost_terms(items.worth, level, terms, query)
        cost = start + step * np.int64(sums[row, lane])
        if cost >= limit:
            continue
        while cursor < stop and excluded[cursor] < position:
            cursor += 1
        if cursor < stop and excluded[cursor] == position:
            continue
        costs[query, size], positions[query, size] = cost, position
        size += 1
        bucket = _bucket(cost + error, counts.shape[1])
        counts[query, bucket] += 1
        within += bucket <= bound
    while within - counts[query, bound] >= k:
        within -= counts[query, bound]
        bound -= 1
    state[query, BOUND], state[query, WITHIN] = bound, within
    state[query, SIZE], state[query, CURSOR] = size, cursor
    if within < k or bound + terms[query, SLACK] >= limit:
        return False
    terms[query, LIMIT] = bound + terms[query, SLACK]
    return True


@internal
def _answer_counted(order, query, pools, rows, distances):
    """Write the best of the pool, whose costs are distances, by bucket; return how many."""
    found, size = rows.shape[0], pools.state[query, SIZE]
    counts = pools.counts[query, : pools.state[query, BOUND] + 1]
    _make_starts(counts)
    for i in range(size):
        cost = np.int64(pools.costs[query, i])
        if cost < counts.shape[0]:
            slot = counts[cost]
            counts[cost] += 1
            if slot < found:
                rows[slot], distances[slot] = order[pools.positions[query, i]], cost
    return min(found, size)


@internal
def _answer_rounded(items, query, pools, rows, scores):
    """Write the best of the pool by their costs before rounding; return how many."""
    terms = pools.terms[query]
    _keep(query, pools, pools.costs[query], terms[LIMIT], np.int64(0))
    costs, places = _sort(_exact_costs(items, query, pools), terms[TOP], terms[SCALE])
    found = min(costs.shape[0], rows.shape[0])
    for i in range(found):
        rows[i], scores[i] = items.order[pools.positions[query, places[i]]], -costs[i]
    return found


@inlined
def _valid(base, n_items):
    """Return the mask of lanes from item `base` on that hold one: all but padding."""
    if n_items - base < GROUP:
        return (np.uint64(1) << np.uint64(n_items - base)) - np.uint64(1)
    return ~np.uint64(0)


@inlined
def _gather(stripes, listed, base, group):
    """Copy the codes of up to 64 listed positions to a group of their own."""
    for lane in range(min(GROUP, listed.shape[0] - base)):
        position = np.int64(listed[base + lane])
        for byte in range(stripes.shape[1]):
            code = stripes[position // GROUP, byte, position % GROUP]
            group[0, byte, lane] = code


@internal
def _scan(items, start, count, listed, sums, pools, k):
    """Scan all groups for queries from `start` on, or only the listed positions for one query.

    A block of items stays in cache for all tiles of queries.
    """
    levels, part, parts, rounded = items.levels, items.part, items.parts, pools.rounded
    state, terms, worth, only = pools.state, pools.terms, items.worth, listed.shape[0] > 0
    n_items = listed.shape[0] if only else items.order.shape[0]
    n_groups, n_bytes = -(-n_items // GROUP), items.stripes.shape[1]
    stripes, tile = items.stripes, sums.shape[0]
    if only:
        stripes, tile = np.empty((1, n_bytes, GROUP), np.uint8), 1
    limits, hits = np.zeros(count + tile, np.int64), np.empty(tile, np.uint64)
    widest, high, low = np.int64(255 if sums.itemsize == 1 else 65535), np.int64(0), np.int64(0)
    limits[:count] = widest
    step = max(1, BLOCK_BYTES // (n_bytes * GROUP))
    for first in range(part * step, n_groups, parts * step):
        ended = 0  # queries for which no later item can be below the limit
        for query in range(0, count, tile):
            mine, own, stale = limits[query : query + tile], start + query, True
            for group in range(first, min(first + step, n_groups)):
                base, end = group * GROUP, min(n_items, group * GROUP + GROUP) - 1
                allowed = _valid(base, n_items) if only else items.allowed[group]
                if allowed == 0:
                    continue
                if levels.shape[0] > 0:
                    best = np.int64(levels[listed[base] if only else base])
                    worst = np.int64(levels[listed[end] if only else end])
                    if stale or high != best or low != worst:
                        stale, high, low, some = False, best, worst, False
                        for i in range(min(tile, count - query)):
                            mine[i] = _group_limit(worth, high, low, terms, own + i, widest)
                            some |= mine[i] > 0
                        if not some:
                            ended += tile
                            break
                if only:
                    _gather(items.stripes, listed, base, stripes)
                at = 0 if only else group
                if tile == 1:
                    found = sums_one(stripes, at, rounded, own, mine, sums, hits)
                else:
                    found = sums_tile(stripes, at, rounded, own, mine, sums, hits)
                if found == 0:
                    continue
                for i in range(tile):
                    mask, row = hits[i] & allowed, own + i
                    if mask == 0:
                        continue
                    if state[row, SIZE] + GROUP > pools.costs.shape[1]:
                        _compact(items, row, pools, k)
                    if _accept(mask, base, listed, sums, i, items, high, pools, row, k):
                        mine[i] = _group_limit(worth, high, low, terms, row, widest)
        if ended >= count:
            break


@internal
def _sums(n_queries, like):
    """Allocate the distances of a group: to a single query, or to a tile of queries."""
    tile = 1 if n_queries == 1 else TILE if like.itemsize == 1 else TILE // 2
    return np.empty((tile, GROUP), like.dtype)


@internal
def _workspace(n_queries, tile, n_bytes, n_buckets, k, exact_rows, like):
    """Allocate tables and pools for the queries that share a pass, once per call."""
    width, size = min(n_queries + tile - 1, QUERIES), 4 * k + 2 * GROUP
    return Pools(
        np.empty((width, 2 * n_bytes, 16), np.uint8),
        np.empty((width, exact_rows, 16), np.int32),
        np.empty((width, n_buckets), np.int32),
        np.empty((width, size), like.dtype),
        np.empty((width, size), np.int32),
        np.zeros((width, 5), np.int64),
        np.zeros((width, 8), like.dtype),
    )


@internal
def _search(items, begin, count, sums, pools, rows, values, missing):
    """Answer `count` queries from `begin` on, whose tables and terms are ready."""
    k, excluded, listed = rows.shape[1], items.excluded_starts, items.listed_starts
    zero, one = np.int64(0), np.int64(1)  # a literal would be compiled for itself
    pools.counts[:count] = 0
    for i in range(count):
        state = pools.state[i]
        state[BOUND], state[WITHIN], state[SIZE] = pools.counts.shape[1] - 1, 0, 0
        if excluded.shape[0] > 0:
            state[CURSOR], state[STOP] = excluded[begin + i], excluded[begin + i + 1]
        if listed.shape[0] > 0:
            mine = items.listed[listed[begin + i] : listed[begin + i + 1]]
            if mine.shape[0] > 0:
                _scan(items, i, one, mine, sums, pools, k)
    if listed.shape[0] == 0:
        _scan(items, zero, count, items.listed, sums, pools, k)
    for i in range(count):
        if pools.exact.shape[1] > 0:
            found = _answer_rounded(items, i, pools, rows[begin + i], values[begin + i])
        else:
            found = _answer_counted(items.order, i, pools, rows[begin + i], values[begin + i])
        rows[begin + i, found:], values[begin + i, found:] = -1, missing


@compiled(nogil=True)
def hamming_kernel(
    like, codes, rows, out, stripes, order, levels, worth, allowed, part, parts,
    skip, skipped, only, chosen,
):  # fmt: skip
    """Find the nearest codes of packed queries (uint64[n_queries, n_words])."""
    lists = (skip, skipped, only, chosen)
    items = Items(stripes, order, levels, worth, allowed, part, parts, *lists)
    n_queries, n_bytes = codes.shape[0], stripes.shape[1]
    sums, n_buckets = _sums(n_queries, like), 8 * n_bytes + 1 - worth[0, 0]
    pools = _workspace(n_queries, sums.shape[0], n_bytes, n_buckets, rows.shape[1], 0, worth)
    for begin in range(0, n_queries, QUERIES):
        count = min(QUERIES, n_queries - begin)
        for i in range(count):
            _hamming_tables(codes[begin + i], pools.rounded[i])
            pools.terms[i] = _HAMMING_TERMS
        _search(items, begin, count, sums, pools, rows, out, -1)


@compiled(nogil=True)
def weighted_kernel(
    like, reals, rows, out, stripes, order, levels, worth, allowed, part, parts,
    skip, skipped, only, chosen,
):  # fmt: skip
    """Find the best codes of real queries (float32[n_queries, n_bits]), over 20-bit weights."""
    lists = (skip, skipped, only, chosen)
    items = Items(stripes, order, levels, worth, allowed, part, parts, *lists)
    n_queries, halves = reals.shape[0], 2 * stripes.shape[1]
    sums = _sums(n_queries, like)
    pools = _workspace(n_queries, sums.shape[0], halves // 2, BUCKETS, rows.shape[1], halves, worth)
    for begin in range(0, n_queries, QUERIES):
        count = min(QUERIES, n_queries - begin)
        for i in range(count):
            query, unit = reals[begin + i], _weight_unit(reals[begin + i])
            total, error = _weighted_tables(query, unit, pools.rounded[i], pools.exact[i])
            _weighted_terms(unit, total, error, worth[0, -1], worth[1, -1], pools.terms[i])
        _search(items, begin, count, sums, pools, rows, out, -np.inf)
