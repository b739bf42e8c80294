"""The compiled functions behind products and features: imported when they are first called."""

from __future__ import annotations

import numpy as np

from coldhash.arrays.compiled import add_multiple, add_signed, compiled, no_lanes, put_lanes
from coldhash.arrays.products import LANES


@compiled(nogil=True)
def multiply_sparse(indptr, indices, values, B, product, first, last):  # type: ignore[no-untyped-def]
    """Compute the rows from first to last of a sparse matrix times B, of 16 columns at least."""
    width = B.shape[1]
    end = width - LANES  # where the last numbers begin: those before may overlap with them
    for row in range(first, last):
        for begin in range(0, width, 4 * LANES):
            a, b = min(begin, end), min(begin + LANES, end)
            t, u, v, w = no_lanes(B), no_lanes(B), no_lanes(B), no_lanes(B)
            if width - begin <= 2 * LANES:
                for j in range(indptr[row], indptr[row + 1]):
                    value, at = values[j], np.uint64(indices[j])
                    t, u = add_multiple(t, value, B, at, a), add_multiple(u, value, B, at, b)
            else:
                c, d = min(begin + 2 * LANES, end), min(begin + 3 * LANES, end)
                for j in range(indptr[row], indptr[row + 1]):
                    value, at = values[j], np.uint64(indices[j])
                    t, u = add_multiple(t, value, B, at, a), add_multiple(u, value, B, at, b)
                    v, w = add_multiple(v, value, B, at, c), add_multiple(w, value, B, at, d)
                put_lanes(v, product, row, c)
                put_lanes(w, product, row, d)
            put_lanes(t, product, row, a)
            put_lanes(u, product, row, b)


@compiled(nogil=True)
def multiply_codes(indptr, indices, values, words, weights, product, first, last):  # type: ignore[no-untyped-def]
    """Compute the rows from first to last of a sparse matrix times weighted codes."""
    n_bits, total = product.shape[1], np.empty((1, 64), np.float32)
    for word in range(words.shape[1]):
        wide = n_bits - 64 * word > 32
        for row in range(first, last):
            t, u, v, w = no_lanes(total), no_lanes(total), no_lanes(total), no_lanes(total)
            for j in range(indptr[row], indptr[row + 1]):
                at = np.uint64(indices[j])
                value, bits = values[j] * weights[at], words[at, word]
                t, u = add_signed(t, value, bits), add_signed(u, value, bits >> np.uint64(16))
                if wide:
                    bits >>= np.uint64(32)
                    v, w = add_signed(v, value, bits), add_signed(w, value, bits >> np.uint64(16))
            put_lanes(t, total, 0, 0)
            put_lanes(u, total, 0, 16)
            put_lanes(v, total, 0, 32)
            put_lanes(w, total, 0, 48)
            for k in range(min(64, n_bits - 64 * word)):  # an assignment compiles for seconds
                product[row, 64 * word + k] = total[0, k]


@compiled(nogil=True, error_model="numpy")
def move_by_events(  # type: ignore[no-untyped-def]
    indptr, places, above, n_events, words, weights, expected, maps, shares, moved, first, last
):  # fmt: skip
    """Compute the rows from first to last of what `HistoryPart` adds to vectors."""
    n_bits = moved.shape[1]
    z, product = np.empty(2 * n_bits + 1, np.float32), np.empty(n_bits, np.float32)
    for row in range(first, last):
        z[:] = 0
        for j in range(indptr[row], indptr[row + 1]):
            at = np.uint64(places[j])
            weight, value = weights[at], above[j] * weights[at]
            for k in range(n_bits):
                if words[at, k // 64] >> np.uint64(k % 64) & np.uint64(1):
                    z[k] += weight
                    z[n_bits + k] += value
                else:
                    z[k] -= weight
                    z[n_bits + k] -= value
        n = np.float32(indptr[row + 1] - indptr[row])
        for k in range(n_bits):
            z[k] -= n * expected[k]
        z[2 * n_bits] = n
        z /= max(n, np.float32(1))
        for m in range(maps.shape[0]):
            share = shares[min(n_events[row], shares.shape[0] - 1), m]
            if share == 0:
                continue
            product[:] = 0
            for j in range(2 * n_bits + 1):
                if z[j] != 0:
                    for k in range(n_bits):
                        product[k] += z[j] * maps[m, j, k]
            for k in range(n_bits):
                moved[row, k] += share * product[k]


@compiled(nogil=True)
def multiply_dense(A, B, product, first, last):  # type: ignore[no-untyped-def]
    """Compute the rows from first to last of a dense matrix times B."""
    for row in range(first, last):
        for j in range(A.shape[1]):
            value = A[row, j]
            if value != 0:  # features are mostly zeros
                for k in range(B.shape[1]):
                    product[row, k] += value * B[j, k]


@compiled(nogil=True)
def add_cells(block, codes, starts, places, numbers):  # type: ignore[no-untyped-def]
    """Add the numbers of each row."""
    for row in range(len(codes)):
        begin, end = starts[codes[row]], starts[codes[row] + 1]
        for entry in range(begin, end):
            block[row, places[entry]] += numbers[entry]
