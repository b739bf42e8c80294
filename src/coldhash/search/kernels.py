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

Counts of accepted items by score yield a threshold, at most the k-th best so far. It gives each
group a limit of the distance: a group with no item below it costs one comparison, and once even
distance 0 is not enough, neither is it for any later group, whose levels are lower. A real
query is scanned with tables of 7 bits, rounded down, so that no item is missed; the score of an
item below the limit is computed from the weights before rounding. Positions come in ascending
order, so an item whose score equals the threshold is refused.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from coldhash.arrays.compiled import compiled
from coldhash.search.lanes import GROUP, TILE, lowest_bit, sums_one, sums_tile

ROUNDING = 15  # bits dropped from exact table entries in the rounded tables
WEIGHT_LIMIT = 127.5 * (1 << ROUNDING)  # heaviest half byte: 7 bits rounded, two fit a byte
QUERIES = 16  # queries that share one pass over a block of items
BLOCK_BYTES = 1 << 14  # item bytes per block: stays in the first-level cache
BUCKETS = 512  # buckets of scores of a real query (a Hamming query has one per distance)
FEW = 16  # scores up to which insertion is the fastest sort
TINY = 1e-12  # relative error, and more, of computed limits

# What is scanned: every parts-th block of groups of stripes from block `part` on, or only the
# listed positions; filters by query as (starts, sorted positions). `order` turns positions into
# rows of the catalogue, `levels` (by position) is empty if all items are of level 0.
Items = namedtuple(
    "Items",
    "stripes order levels bases gains part parts excluded_starts excluded listed_starts listed",
)
# Per query of a pass: rounded table (scanned), the same before rounding, number of accepted items
# by bucket of scores, scores and positions of accepted items, and the slots below.
Pools = namedtuple("Pools", "rounded exact counts scores positions state terms")
BOUND = 0  # state: bucket of the k-th best so far
WITHIN = 1  # items accepted up to that bucket
SIZE = 2  # number of accepted items in the pool
CURSOR, STOP = 3, 4  # range of the excluded positions not yet passed
UNIT, HALF, STEP = 0, 1, 2  # terms: of the score, and what 1 of a rounded distance takes from it
TOP, WIDTH, SCALE = 3, 4, 5  # the highest score, the width of a bucket and 1 / width
SLACK = 6  # 0 if all scores of a bucket are equal, else 1 and a little for errors
THRESHOLD = 7  # scores up to here are refused

# A call passes every array field by field, and counts references to it unless all that it calls is
# inlined: what runs for each group or item is inlined by LLVM. No division raises an error.
inlined = compiled(nogil=True, error_model="numpy", forceinline=True)

_POPCOUNT = np.array([bin(value).count("1") for value in range(16)], np.uint8)
_HAMMING_TERMS = np.array([1, 0, 1, 0, 1, 1, 0, -(1 << 62)])


@compiled(nogil=True)
def _hamming_tables(code, rounded):
    """Compute rounded[half byte, value]: the bits in which value differs from the query's."""
    for byte in range(code.shape[0]):
        low, high = code[byte] & 15, code[byte] >> 4
        for value in range(16):
            rounded[2 * byte, value] = _POPCOUNT[value ^ low]
            rounded[2 * byte + 1, value] = _POPCOUNT[value ^ high]


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

    Return the total weight.
    """
    total = 0
    for half in range(exact.shape[0]):
        row = exact[half]
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
    return total


@compiled(nogil=True)
def _weighted_terms(unit, total, base, gain, terms):
    """Compute the terms of a real query; base and gain are the highest there are."""
    whole = unit * total
    top, bottom = gain * (base + whole), -gain * whole
    terms[UNIT], terms[HALF], terms[STEP] = 2 * unit, total / 2, 2 * unit * (1 << ROUNDING)
    terms[TOP], terms[WIDTH] = top, (top - bottom) / BUCKETS if top > bottom else 1.0
    terms[SCALE] = 1 / terms[WIDTH]
    terms[SLACK], terms[THRESHOLD] = 1 + 1e-6, -np.inf


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
def _level(levels, position):
    return np.int64(levels[position]) if levels.shape[0] > 0 else 0


@inlined
def _limit(base, gain, terms, query, widest):
    """Return the first rounded distance at which no score is above the threshold."""
    threshold = terms[query, THRESHOLD]
    if gain == 0:
        return widest if threshold < 0 else 0
    best, needed = base + terms[query, UNIT] * terms[query, HALF], threshold / gain
    room = best - needed
    if terms[query, SLACK] > 0:
        room += TINY * (abs(best) + abs(needed))
    return np.int64(max(0.0, min(np.ceil(room / terms[query, STEP]), widest)))


@inlined
def _group_limit(bases, gains, high, low, terms, query, widest):
    """Return the limit for levels from high to low: scores are convex in the gain."""
    limit = _limit(bases[high], gains[high], terms, query, widest)
    if low == high:
        return limit
    return max(limit, _limit(bases[low], gains[low], terms, query, widest))


@compiled(nogil=True)
def _keep(scores, positions, size, threshold, n_equal):
    """Keep scores above the threshold, and the first n_equal at it; return how many these are."""
    kept = 0
    for i in range(size):
        if scores[i] > threshold or (scores[i] == threshold and n_equal > 0):
            n_equal -= scores[i] == threshold
            scores[kept], positions[kept] = scores[i], positions[i]
            kept += 1
    return kept


@compiled(nogil=True)
def _compact(pools, query, k):
    """Drop what is below the threshold; if that makes little room, all but the k best."""
    scores, positions = pools.scores[query], pools.positions[query]
    state, terms = pools.state[query], pools.terms[query]
    size = _keep(scores, positions, state[SIZE], terms[THRESHOLD], scores.shape[0])
    if 2 * size > scores.shape[0]:
        threshold = np.partition(scores[:size], size - k)[size - k]
        size = _keep(scores, positions, size, threshold, k - np.sum(scores[:size] > threshold))
        pools.counts[query, state[BOUND]] -= state[WITHIN] - k
        state[WITHIN], terms[THRESHOLD] = k, threshold
    state[SIZE] = size


@inlined
def _accept(hits, base, listed, sums, row, items, pools, query, k):
    """Add the items above the threshold to the pool, in tie order; return if that raised it."""
    stripes, _, levels, bases, gains, _, _, _, excluded, _, _ = items
    _, exact, counts, scores, positions, state, terms = pools
    bound, within, size = state[query, BOUND], state[query, WITHIN], state[query, SIZE]
    cursor, stop, threshold = state[query, CURSOR], state[query, STOP], terms[query, THRESHOLD]
    unit, half, top = terms[query, UNIT], terms[query, HALF], terms[query, TOP]
    span = 1 << ROUNDING if exact.shape[1] > 0 else 1
    width, scale, slack = terms[query, WIDTH], terms[query, SCALE], terms[query, SLACK]
    while hits != 0:
        lane = np.int64(lowest_bit(hits))
        hits &= hits - np.uint64(1)
        position = np.int64(listed[base + lane]) if listed.shape[0] > 0 else base + lane
        level = _level(levels, position)
        level_base, gain = bases[level], gains[level]
        score = gain * (level_base + unit * (half - np.int64(sums[row, lane]) * span))
        if score <= threshold:
            continue
        if exact.shape[1] > 0:
            score = gain * (level_base + unit * (half - _distance(stripes, position, exact, query)))
            if score <= threshold:
                continue
        while cursor < stop and excluded[cursor] < position:
            cursor += 1
        if cursor < stop and excluded[cursor] == position:
            continue
        scores[query, size], positions[query, size] = score, position
        size += 1
        bucket = min(np.int64((top - score) * scale), counts.shape[1] - 1)
        counts[query, bucket] += 1
        if bucket <= bound:
            within += 1
            while within - counts[query, bound] >= k:
                within -= counts[query, bound]
                bound -= 1
            if within >= k:
                threshold = max(threshold, top - (bound + slack) * width)
    state[query, BOUND], state[query, WITHIN] = bound, within
    state[query, SIZE], state[query, CURSOR] = size, cursor
    raised = threshold > terms[query, THRESHOLD]
    terms[query, THRESHOLD] = threshold
    return raised


@compiled(nogil=True)
def _sort(scores, positions, ends):
    """Sort what is in order by buckets by descending score; equal scores stay in order."""
    begin = 0
    for end in ends:
        if end - begin > FEW:
            best = begin + np.argsort(-scores[begin:end], kind="mergesort")
            scores[begin:end], positions[begin:end] = scores[best], positions[best]
        begin = end
    for i in range(1, scores.shape[0]):
        score, position, j = scores[i], positions[i], i
        while j > 0 and scores[j - 1] < score:
            scores[j], positions[j] = scores[j - 1], positions[j - 1]
            j -= 1
        scores[j], positions[j] = score, position


@compiled(nogil=True)
def _answer(order, query, pools, rows, values):
    """Write the best of the pool, by bucket, then within each bucket; return how many.

    Most buckets hold a score or two: three times as fast as a sort of all scores.
    """
    counts, state, terms = pools.counts[query], pools.state[query], pools.terms[query]
    start, n_buckets = 0, counts.shape[0]
    for bucket in range(state[BOUND] + 1):
        count = counts[bucket]
        counts[bucket] = start
        start += count
    scores, positions = np.empty(start, pools.scores.dtype), np.empty(start, np.int32)
    for i in range(state[SIZE]):
        score = pools.scores[query, i]
        bucket = min(np.int64((terms[TOP] - score) * terms[SCALE]), n_buckets - 1)
        if bucket <= state[BOUND]:
            slot = counts[bucket]
            counts[bucket] += 1
            scores[slot], positions[slot] = score, pools.positions[query, i]
    if terms[SLACK] > 0:
        _sort(scores, positions, counts[: state[BOUND] + 1])  # counts have become ends of buckets
    found = min(start, rows.shape[0])
    for i in range(found):
        rows[i], values[i] = order[positions[i]], scores[i]
    return found


@inlined
def _valid(group, n_items):
    """Return the mask of lanes that hold an item: all but the padding of the last group."""
    if group == n_items // GROUP:
        return (np.uint64(1) << np.uint64(n_items % GROUP)) - np.uint64(1)
    return ~np.uint64(0)


@compiled(nogil=True)
def _scan(items, count, sums, pools, k):
    """Scan all groups; a block of items stays in cache for all tiles of queries."""
    stripes, order, levels, bases, gains, part, parts, _, _, _, listed = items
    rounded, state, terms = pools.rounded, pools.state, pools.terms
    n_items, n_groups, tile = order.shape[0], stripes.shape[0], sums.shape[0]
    limits, hits = np.zeros(tile, np.int64), np.empty(tile, np.uint64)
    widest, high, low = 255 if sums.itemsize == 1 else 65535, -1, -1
    step = max(1, BLOCK_BYTES // (stripes.shape[1] * GROUP))
    for first in range(part * step, n_groups, parts * step):
        ended = 0  # queries for which no later item can be above the threshold
        for query in range(0, count, tile):
            if count > tile:  # the limits are those of other queries
                high, low = -1, -1
                limits[:] = 0
            for group in range(first, min(first + step, n_groups)):
                base = group * GROUP
                best, worst = 0, 0
                if levels.shape[0] > 0:
                    best = np.int64(levels[base])
                    worst = np.int64(levels[min(n_items, base + GROUP) - 1])
                if high != best or low != worst:
                    high, low, some = best, worst, False
                    for i in range(min(tile, count - query)):
                        limits[i] = _group_limit(bases, gains, high, low, terms, query + i, widest)
                        some |= limits[i] > 0
                    if not some:
                        ended += tile
                        break
                if tile == 1:
                    found = sums_one(stripes, group, rounded, query, limits, sums, hits)
                else:
                    found = sums_tile(stripes, group, rounded, query, limits, sums, hits)
                if found == 0:
                    continue
                for i in range(tile):
                    mask, row = hits[i] & _valid(group, n_items), query + i
                    if mask == 0:
                        continue
                    if state[row, SIZE] + GROUP > pools.scores.shape[1]:
                        _compact(pools, row, k)
                    if _accept(mask, base, listed, sums, i, items, pools, row, k):
                        limits[i] = _group_limit(bases, gains, high, low, terms, row, widest)
        if ended >= count:
            break


@compiled(nogil=True)
def _scan_listed(items, query, listed, sums, pools, k):
    """Scan only the listed positions for one query, 64 at a time."""
    for base in range(0, listed.shape[0], GROUP):
        lanes = min(GROUP, listed.shape[0] - base)
        for lane in range(lanes):
            position = np.int64(listed[base + lane])
            sums[0, lane] = _distance(items.stripes, position, pools.rounded, query)
        if pools.state[query, SIZE] + GROUP > pools.scores.shape[1]:
            _compact(pools, query, k)
        hits = ~np.uint64(0) >> np.uint64(GROUP - lanes)
        _accept(hits, base, listed, sums, 0, items, pools, query, k)


@compiled(nogil=True)
def _sums(n_queries, like):
    """Allocate the distances of a group: to a single query, or to a tile of queries."""
    tile = 1 if n_queries == 1 else TILE if like.itemsize == 1 else TILE // 2
    return np.empty((tile, GROUP), like.dtype)


@compiled(nogil=True)
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


@compiled(nogil=True)
def _search(items, begin, count, sums, pools, rows, values, missing):
    """Answer `count` queries from `begin` on, whose tables and terms are ready."""
    k, excluded, listed = rows.shape[1], items.excluded_starts, items.listed_starts
    pools.counts[:count] = 0
    for i in range(count):
        state = pools.state[i]
        state[BOUND], state[WITHIN], state[SIZE] = pools.counts.shape[1] - 1, 0, 0
        if excluded.shape[0] > 0:
            state[CURSOR], state[STOP] = excluded[begin + i], excluded[begin + i + 1]
        if listed.shape[0] > 0:
            mine = items.listed[listed[begin + i] : listed[begin + i + 1]]
            _scan_listed(items, i, mine, sums, pools, k)
    if listed.shape[0] == 0:
        _scan(items, count, sums, pools, k)
    for i in range(count):
        found = _answer(items.order, i, pools, rows[begin + i], values[begin + i])
        rows[begin + i, found:], values[begin + i, found:] = -1, missing


@compiled(nogil=True)
def hamming_kernel(like, codes, rows, distances, *scanned):
    """Find the nearest codes of packed queries (uint8[n_queries, n_bytes])."""
    items = Items(*scanned)
    n_queries, n_bytes = codes.shape
    sums, n_buckets = _sums(n_queries, like), 8 * n_bytes + 1 - items.bases[0]
    pools = _workspace(n_queries, sums.shape[0], n_bytes, n_buckets, rows.shape[1], 0, items.gains)
    for begin in range(0, n_queries, QUERIES):
        count = min(QUERIES, n_queries - begin)
        for i in range(count):
            _hamming_tables(codes[begin + i], pools.rounded[i])
            pools.terms[i] = _HAMMING_TERMS
        _search(items, begin, count, sums, pools, rows, distances, 1)
    for i in range(n_queries):
        for j in range(rows.shape[1]):
            distances[i, j] = -distances[i, j]  # scores so far


@compiled(nogil=True)
def weighted_kernel(like, queries, rows, scores, *scanned):
    """Find the best codes of real queries (float32[n_queries, n_bits]), over 20-bit weights."""
    items = Items(*scanned)
    n_queries, halves = queries.shape[0], 2 * items.stripes.shape[1]
    sums, gains = _sums(n_queries, like), items.gains
    pools = _workspace(n_queries, sums.shape[0], halves // 2, BUCKETS, rows.shape[1], halves, gains)
    for begin in range(0, n_queries, QUERIES):
        count = min(QUERIES, n_queries - begin)
        for i in range(count):
            query, unit = queries[begin + i], _weight_unit(queries[begin + i])
            total = _weighted_tables(query, unit, pools.rounded[i], pools.exact[i])
            _weighted_terms(unit, total, items.bases[-1], gains[-1], pools.terms[i])
        _search(items, begin, count, sums, pools, rows, scores, -np.inf)
