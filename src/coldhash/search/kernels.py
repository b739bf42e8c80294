"""The exact scan for the k best of many codes: Hamming distance, or a real-valued query.

Both are one computation, a weighted Hamming distance Σ_b w_b [item bit ≠ query bit]: Hamming has
w = 1; a real query has w = |q|, because Σ_b q_b d_b (d = ±1) equals Σ_b |q_b| - 2 (weight of the
bits whose sign disagrees).

Items are stored in the order in which ties are broken, in groups of 64, one row of 64 bytes per
byte of the code: `stripes[group, byte, lane]`. A table of 16 entries per half byte then gives the
distances of 32 items per shuffle (`lanes.py`).

Counts of accepted distances yield the k-th best so far; a group with no item below it costs
one comparison. Positions come in ascending order, so ties need no comparison. A real query is
scanned with tables of 7 bits, rounded down; the rounding bound keeps every item that may belong to
the answer, and those few are ordered by their exact integer distance.
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
BUCKETS = 512  # most buckets of distances of a real query (a Hamming query has one per distance)
FEW = 16  # keys up to which insertion is the fastest sort

# What is scanned: groups first..last of stripes, or only the listed positions; filters by query
# as (starts, sorted positions). `order` turns positions into rows of the catalogue.
Items = namedtuple(
    "Items", "stripes order first last excluded_starts excluded listed_starts listed"
)
# Per query of a pass: rounded table (scanned), the same before rounding, number of accepted items
# by distance, accepted items (distance << 32 | position), and the state slots below.
Pools = namedtuple("Pools", "rounded exact counts keys state")
BOUND = 0  # bucket of the k-th best so far
WITHIN = 1  # items accepted up to that bucket
LIMIT = 2  # first distance refused
SIZE = 3  # number of keys
CURSOR, STOP = 4, 5  # range of the excluded positions not yet passed
SLACK = 6  # 0 when the rounded table is exact, else 1 + its largest total rounding
SHIFT = 7  # distance -> bucket

_POPCOUNT = np.array([bin(value).count("1") for value in range(16)], np.uint8)


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
def _weighted_tables(query, unit, rounded, exact, state):
    """Compute exact[half byte, value]: the weight of bits that differ from the query's signs.

    Set the slack and the shift of the rounded tables, and return the total weight.
    """
    total, error = 0, 0
    for half in range(exact.shape[0]):
        row, heaviest, worst = exact[half], 0, 0
        row[0] = 0
        for j in range(4):
            bit = 4 * half + j
            value = np.float64(query[bit]) if bit < query.shape[0] else 0.0
            weight = np.int32(np.floor(abs(value) / unit + 0.5))
            heaviest += weight
            for known in range(1 << j):
                agrees = row[known]
                row[known + (1 << j)] = agrees + (weight if value < 0 else 0)
                row[known] = agrees + (0 if value < 0 else weight)
        for value in range(16):
            rounded[half, value] = row[value] >> ROUNDING
            worst = max(worst, row[value] & ((1 << ROUNDING) - 1))
        total += heaviest
        error += worst
    state[SLACK] = 1 + (error >> ROUNDING)
    state[SHIFT] = 0
    while total >> ROUNDING >> state[SHIFT] >= BUCKETS:
        state[SHIFT] += 1
    return total


@compiled(nogil=True)
def _distance(stripes, position, table):
    """Compute the distance of one item, by the rounded or the exact table."""
    group, lane = position // GROUP, position % GROUP
    total = 0
    for byte in range(stripes.shape[1]):
        code = stripes[group, byte, lane]
        total += np.int64(table[2 * byte, code & 15]) + np.int64(table[2 * byte + 1, code >> 4])
    return total


@compiled(nogil=True)
def _accept(hits, base, listed, sums, sums_row, query, k, excluded, counts, keys, state):
    """Add the items below the limit to the pool, in tie order; return the new limit."""
    bound, within, limit = state[query, BOUND], state[query, WITHIN], state[query, LIMIT]
    size, cursor, stop = state[query, SIZE], state[query, CURSOR], state[query, STOP]
    slack, shift = state[query, SLACK], state[query, SHIFT]
    while hits != 0:
        lane = np.int64(lowest_bit(hits))
        hits &= hits - np.uint64(1)
        distance = np.int64(sums[sums_row, lane])
        if distance >= limit:
            continue
        position = np.int64(listed[base + lane]) if listed.shape[0] > 0 else base + lane
        while cursor < stop and excluded[cursor] < position:
            cursor += 1
        if cursor < stop and excluded[cursor] == position:
            continue
        keys[query, size] = distance << 32 | position
        size += 1
        bucket = distance >> shift
        counts[query, bucket] += 1
        if bucket <= bound:
            within += 1
            while within - counts[query, bound] >= k:
                within -= counts[query, bound]
                bound -= 1
            if within >= k:
                # with the slack it may pass what 16 bits hold, where it started
                limit = min(limit, ((bound + 1) << shift) - 1 + slack)
    state[query, BOUND], state[query, WITHIN], state[query, LIMIT] = bound, within, limit
    state[query, SIZE], state[query, CURSOR] = size, cursor
    return limit


@compiled(nogil=True)
def _compact(stripes, k, exact, keys, state):
    """Drop keys above the limit; if rounding ties fill the pool, keep the k exact best."""
    size, kept = state[SIZE], 0
    for i in range(size):
        if keys[i] >> 32 <= state[LIMIT]:
            keys[kept] = keys[i]
            kept += 1
    if 2 * kept > keys.shape[0]:
        size, kept = kept, 0
        ranks = np.empty(size, np.int64)
        for i in range(size):
            position = keys[i] & 0xFFFFFFFF
            ranks[i] = _distance(stripes, position, exact) << 32 | position
        last = np.sort(ranks)[k - 1]
        for i in range(size):
            if ranks[i] <= last:
                keys[kept] = keys[i]
                kept += 1
    state[SIZE] = kept


@compiled(nogil=True)
def _answer_counted(order, counts, keys, state, rows, distances):
    """Sort by counting: the counts say where each distance starts, keys come in tie order."""
    start, k = 0, rows.shape[0]
    for bucket in range(state[BOUND] + 1):
        count = counts[bucket]
        counts[bucket] = start
        start += count
    for i in range(state[SIZE]):
        distance = keys[i] >> 32
        if distance <= state[BOUND]:
            slot = counts[distance]
            counts[distance] += 1
            if slot < k:
                rows[slot] = order[keys[i] & 0xFFFFFFFF]
                distances[slot] = distance
    return min(k, start)


@compiled(nogil=True)
def _insertion_sort(keys, begin, end):
    for i in range(begin + 1, end):
        key, j = keys[i], i
        while j > begin and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key


@compiled(nogil=True)
def _sort(keys, counts, shift, k):
    """Return the keys with the k smallest first, in order: by bucket, then within each bucket.

    Most buckets hold a key or two: three times as fast as a sort of all keys.
    """
    counts[:] = 0
    for key in keys:
        counts[key >> shift] += 1
    start = 0
    for bucket in range(counts.shape[0]):
        count = counts[bucket]
        counts[bucket] = start
        start += count
    ordered = np.empty_like(keys)
    for key in keys:
        bucket = key >> shift
        ordered[counts[bucket]] = key
        counts[bucket] += 1
    begin = 0
    for end in counts:  # each count has become the end of its bucket
        if end - begin > FEW:
            ordered[begin:end].sort()
        else:
            _insertion_sort(ordered, begin, end)
        begin = end
        if begin >= k:
            break
    return ordered


@compiled(nogil=True)
def _answer_exact(stripes, order, exact, counts, keys, state, rows, distances):
    """Sort what the rounded scan has left by exact distance, then position."""
    kept = 0
    for i in range(state[SIZE]):
        if keys[i] >> 32 < state[LIMIT]:
            position = keys[i] & 0xFFFFFFFF
            keys[kept] = _distance(stripes, position, exact) << 32 | position
            kept += 1
    found = min(rows.shape[0], kept)
    ordered = _sort(keys[:kept], counts, 32 + ROUNDING + state[SHIFT], found)
    for i in range(found):
        rows[i] = order[ordered[i] & 0xFFFFFFFF]
        distances[i] = ordered[i] >> 32
    return found


@compiled(nogil=True)
def _valid(group, n_items):
    """Return the mask of lanes that hold an item: all but the padding of the last group."""
    if group == n_items // GROUP:
        return (np.uint64(1) << np.uint64(n_items % GROUP)) - np.uint64(1)
    return ~np.uint64(0)


@compiled(nogil=True)
def _scan_one(items, query, sums, pools, k):
    """Scan all groups for one query."""
    stripes, order, first, last, _, excluded, _, _ = items
    rounded, exact, counts, keys, state = pools
    limits, hits = state[query, LIMIT : LIMIT + 1].copy(), np.empty(1, np.uint64)
    listed = excluded[:0]
    for group in range(first, last):
        if sums_one(stripes, group, rounded, query, limits, sums, hits) != 0:
            mask = hits[0] & _valid(group, order.shape[0])
            if state[query, SIZE] + GROUP > keys.shape[1]:
                _compact(stripes, k, exact[query], keys[query], state[query])
            limits[0] = _accept(
                mask, group * GROUP, listed, sums, 0, query, k, excluded, counts, keys, state
            )


@compiled(nogil=True)
def _scan_tile(items, first, last, query, limits, hits, sums, pools, k):
    """Scan a block of groups for a tile of queries."""
    stripes, order, _, _, _, excluded, _, _ = items
    rounded, exact, counts, keys, state = pools
    listed = excluded[:0]
    for group in range(first, last):
        if sums_tile(stripes, group, rounded, query, limits, sums, hits) != 0:
            for i in range(sums.shape[0]):
                mask, row = hits[i] & _valid(group, order.shape[0]), query + i
                if mask == 0:
                    continue
                if state[row, SIZE] + GROUP > keys.shape[1]:
                    _compact(stripes, k, exact[row], keys[row], state[row])
                limits[i] = _accept(
                    mask, group * GROUP, listed, sums, i, row, k, excluded, counts, keys, state
                )


@compiled(nogil=True)
def _scan_tiles(items, count, sums, pools, k):
    """Scan all groups for many queries; a block of items stays in cache for all tiles of them."""
    tile, step = sums.shape[0], max(1, BLOCK_BYTES // (items.stripes.shape[1] * GROUP))
    limits, hits = np.zeros(pools.state.shape[0] + tile, np.int64), np.empty(tile, np.uint64)
    limits[:count] = pools.state[:count, LIMIT]
    for first in range(items.first, items.last, step):
        last = min(first + step, items.last)
        for query in range(0, count, tile):
            _scan_tile(items, first, last, query, limits[query:], hits, sums, pools, k)


@compiled(nogil=True)
def _scan_listed(items, query, listed, sums, pools, k):
    """Scan only the listed positions for one query, 64 at a time."""
    rounded, exact, counts, keys, state = pools
    for base in range(0, listed.shape[0], GROUP):
        lanes = min(GROUP, listed.shape[0] - base)
        for lane in range(lanes):
            sums[0, lane] = _distance(items.stripes, np.int64(listed[base + lane]), rounded[query])
        if state[query, SIZE] + GROUP > keys.shape[1]:
            _compact(items.stripes, k, exact[query], keys[query], state[query])
        hits = ~np.uint64(0) >> np.uint64(GROUP - lanes)
        _accept(hits, base, listed, sums, 0, query, k, items.excluded, counts, keys, state)


@compiled(nogil=True)
def _sums(n_queries, like):
    """Allocate the distances of a group: to a single query, or to a tile of queries."""
    tile = 1 if n_queries == 1 else TILE if like.itemsize == 1 else TILE // 2
    return np.empty((tile, GROUP), like.dtype)


@compiled(nogil=True)
def _workspace(n_queries, tile, n_bytes, n_buckets, k, exact_rows):
    """Allocate tables and pools for the queries that share a pass, once per call."""
    width = min(n_queries + tile - 1, QUERIES)
    return Pools(
        np.empty((width, 2 * n_bytes, 16), np.uint8),
        np.empty((width, exact_rows, 16), np.int32),
        np.empty((width, n_buckets), np.int32),
        np.empty((width, 4 * k + 2 * GROUP), np.int64),
        np.zeros((width, 8), np.int64),
    )


@compiled(nogil=True)
def _start(items, begin, count, pools, widest):
    """Empty the pools: any distance is accepted, the bound is the last bucket."""
    for i in range(count):
        pools.counts[i, :] = 0
        state = pools.state[i]
        state[BOUND] = pools.counts.shape[1] - 1
        state[WITHIN] = 0
        state[LIMIT] = widest
        state[SIZE] = 0
        if items.excluded_starts.shape[0] > 0:
            state[CURSOR] = items.excluded_starts[begin + i]
            state[STOP] = items.excluded_starts[begin + i + 1]


@compiled(nogil=True)
def _search(items, begin, count, sums, pools, rows, distances):
    """Answer `count` queries from `begin` on, whose tables are ready."""
    k, stripes, order = rows.shape[1], items.stripes, items.order
    _start(items, begin, count, pools, 255 if sums.itemsize == 1 else 65535)
    starts = items.listed_starts
    if starts.shape[0] > 0:
        for i in range(count):
            listed = items.listed[starts[begin + i] : starts[begin + i + 1]]
            _scan_listed(items, i, listed, sums, pools, k)
    elif sums.shape[0] > 1:
        _scan_tiles(items, count, sums, pools, k)
    else:
        _scan_one(items, 0, sums, pools, k)
    for i in range(count):
        counts, keys, state = pools.counts[i], pools.keys[i], pools.state[i]
        my_rows, mine = rows[begin + i], distances[begin + i]
        if state[SLACK] == 0:
            found = _answer_counted(order, counts, keys, state, my_rows, mine)
        else:
            exact = pools.exact[i]
            found = _answer_exact(stripes, order, exact, counts, keys, state, my_rows, mine)
        my_rows[found:], mine[found:] = -1, -1


@compiled(nogil=True)
def hamming_kernel(
    stripes,
    order,
    first,
    last,
    excluded_starts,
    excluded,
    listed_starts,
    listed,
    like,
    codes,
    rows,
    distances,
):
    """Find the nearest codes of packed queries (uint8[n_queries, n_bytes])."""
    items = Items(stripes, order, first, last, excluded_starts, excluded, listed_starts, listed)
    n_queries, n_bytes = codes.shape
    sums = _sums(n_queries, like)
    pools = _workspace(n_queries, sums.shape[0], n_bytes, 8 * n_bytes + 1, rows.shape[1], 0)
    for begin in range(0, n_queries, QUERIES):
        count = min(QUERIES, n_queries - begin)
        for i in range(count):
            _hamming_tables(codes[begin + i], pools.rounded[i])
        _search(items, begin, count, sums, pools, rows, distances)


@compiled(nogil=True)
def weighted_kernel(
    stripes,
    order,
    first,
    last,
    excluded_starts,
    excluded,
    listed_starts,
    listed,
    like,
    queries,
    rows,
    distances,
    scores,
):
    """Find the best codes of real queries (float32[n_queries, n_bits]), over 20-bit weights."""
    items = Items(stripes, order, first, last, excluded_starts, excluded, listed_starts, listed)
    n_queries, halves = queries.shape[0], 2 * stripes.shape[1]
    sums = _sums(n_queries, like)
    pools = _workspace(n_queries, sums.shape[0], halves // 2, BUCKETS, rows.shape[1], halves)
    totals, units = np.empty(n_queries, np.int64), np.empty(n_queries, np.float64)
    for begin in range(0, n_queries, QUERIES):
        count = min(QUERIES, n_queries - begin)
        for i in range(count):
            query, unit = queries[begin + i], _weight_unit(queries[begin + i])
            units[begin + i] = unit
            totals[begin + i] = _weighted_tables(
                query, unit, pools.rounded[i], pools.exact[i], pools.state[i]
            )
        _search(items, begin, count, sums, pools, rows, distances)
    for i in range(n_queries):
        for j in range(rows.shape[1]):
            score = (totals[i] - 2 * np.int64(distances[i, j])) * units[i]
            scores[i, j] = score if rows[i, j] >= 0 else -np.inf
