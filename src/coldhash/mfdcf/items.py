"""Descent over bits, shared by the discrete methods.

Rows do not know of each other, so the result is the same bit for bit at any number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from coldhash.arrays.compiled import compiled

BITS_AT_ONCE = 4  # 16 patterns cost little more than 4 single flips, and find more


def descend(
    D: np.ndarray, L: np.ndarray, G: np.ndarray, n_sweeps: int, rng: np.random.Generator
) -> np.ndarray:
    """Lower Σ_i d_i G d_i' - 2 d_i l_i' over codes d_i, the rows of D; gives the new codes.

    Bits are taken in blocks drawn anew at each call, and each block is set to its exact best given
    the rest. A block changes only if that is a gain, so the sum never rises.
    """
    n_bits = D.shape[1]
    width = max(size for size in range(1, BITS_AT_ONCE + 1) if n_bits % size == 0)
    blocks = rng.permutation(n_bits).reshape(-1, width)
    patterns = ((np.arange(2**width)[:, None] >> np.arange(width)) & 1) * 2.0 - 1.0
    energies = np.array([np.sum((patterns @ G[np.ix_(b, b)]) * patterns, axis=1) for b in blocks])
    dtype = L.dtype
    improved: np.ndarray = _descend(
        D.astype(dtype),
        D.astype(dtype) @ G.astype(dtype),
        L,
        np.ascontiguousarray(G, dtype=dtype),
        blocks,
        patterns.astype(dtype),
        energies.astype(dtype),
        n_sweeps,
    )
    return improved


@compiled(parallel=True)
def _descend(D, DG, L, G, blocks, patterns, energies, n_sweeps):  # type: ignore[no-untyped-def]
    """Set the blocks of each row one after the other; DG = D G is kept up to date."""
    n_blocks, width = blocks.shape
    for i in prange(len(D)):
        d, dG, pulls = D[i], DG[i], L[i]
        pull = np.empty(width, dtype=D.dtype)
        for _ in range(n_sweeps):
            changed = False
            for n in range(n_blocks):
                bits = blocks[n]
                for a in range(width):
                    pull[a] = pulls[bits[a]] - dG[bits[a]]
                    for c in range(width):  # give the block's own share back
                        pull[a] += G[bits[a], bits[c]] * d[bits[c]]
                now, best = _best_pattern(d, bits, pull, patterns, energies[n])
                if best != now:
                    changed = True
                    for a in range(width):
                        step = patterns[best, a] - d[bits[a]]
                        if step != 0:
                            d[bits[a]] = patterns[best, a]
                            for c in range(len(d)):
                                dG[c] += step * G[bits[a], c]
            if not changed:
                break
    return D


@compiled()
def _best_pattern(d, bits, pull, patterns, energies):  # type: ignore[no-untyped-def]
    """Find the present pattern of a block and the best one; a tie, or nearly, keeps the present."""
    now = 0
    for a in range(len(bits)):
        if d[bits[a]] > 0:
            now += 1 << a
    best, lowest = now, np.inf
    for p in range(len(patterns)):
        energy = energies[p]
        for a in range(len(bits)):
            energy -= 2 * patterns[p, a] * pull[a]
        if p == now:
            energy -= abs(energy) * 1e-6
        if energy < lowest:
            best, lowest = p, energy
    return now, best
