"""The compiled functions behind products and features: imported when they are first called."""

from __future__ import annotations

import numpy as np

from coldhash.arrays.compiled import compiled


@compiled(nogil=True)
def multiply_sparse(indptr, indices, values, B, product, first, last):  # type: ignore[no-untyped-def]
    """Compute the rows from first to last of a sparse matrix times B."""
    width = B.shape[1]
    total = np.empty(width, B.dtype)
    for row in range(first, last):
        total[:] = 0
        start, end = indptr[row], indptr[row + 1]
        while (end - start) % 4 != 0:
            value, at = values[start], np.uint64(indices[start])
            for k in range(width):
                total[k] += value * B[at, k]
            start += 1
        for j in range(start, end, 4):  # four at once: the total is written a quarter as often
            u, v, w, x = values[j], values[j + 1], values[j + 2], values[j + 3]
            a, b = np.uint64(indices[j]), np.uint64(indices[j + 1])
            c, d = np.uint64(indices[j + 2]), np.uint64(indices[j + 3])
            for k in range(width):
                total[k] += u * B[a, k]
                total[k] += v * B[b, k]
                total[k] += w * B[c, k]
                total[k] += x * B[d, k]
        for k in range(width):  # an assignment of arrays takes seconds to compile
            product[row, k] = total[k]


@compiled(nogil=True)
def multiply_codes(indptr, indices, values, words, weights, product, first, last):  # type: ignore[no-untyped-def]
    """Compute the rows from first to last of a sparse matrix times weighted codes."""
    n_bits = product.shape[1]
    total = np.empty(64, np.float32)
    for word in range(words.shape[1]):
        begin = 64 * word
        wide = n_bits - begin > 32
        for row in range(first, last):
            total[:] = 0
            start, end = indptr[row], indptr[row + 1]
            # two at once: the total is written half as often; beside the first of an odd number, 0
            for j in range(start - (end - start) % 2, end, 2):
                at, after = np.uint64(indices[j]), np.uint64(indices[j + 1])
                one = values[j] * weights[at] if j >= start else np.float32(0)
                two = values[j + 1] * weights[after]
                code, other = words[at, word], words[after, word]
                low, below = np.int32(code), np.int32(other)
                for k in range(32):  # a bit becomes the sign of 32, as vector instructions want it
                    total[k] += one if np.int32(low << np.int32(31 - k)) < 0 else -one
                    total[k] += two if np.int32(below << np.int32(31 - k)) < 0 else -two
                low, below = np.int32(code >> np.uint64(32)), np.int32(other >> np.uint64(32))
                for k in range(32 if wide else 0):
                    total[32 + k] += one if np.int32(low << np.int32(31 - k)) < 0 else -one
                    total[32 + k] += two if np.int32(below << np.int32(31 - k)) < 0 else -two
            for k in range(min(64, n_bits - begin)):
                product[row, begin + k] = total[k]


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
    """Add the numbers of each row; returns which rows have any."""
    known = np.zeros(len(codes), np.bool_)
    for row in range(len(codes)):
        begin, end = starts[codes[row]], starts[codes[row] + 1]
        known[row] = end > begin
        for entry in range(begin, end):
            block[row, places[entry]] += numbers[entry]
    return known
