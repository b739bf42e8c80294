"""Descent over bits, shared by the discrete methods.

Rows do not know of each other, so the result is the same bit for bit at any number of threads.
"""

from __future__ import annotations

import numpy as np

from coldhash.arrays.compiled import compiled
from coldhash.arrays.threads import run_rows

BITS_AT_ONCE = 4  # 16 patterns cost little more than 4 single flips, and find more


def descend(
    D: np.ndarray, L: np.ndarray, G: np.ndarray, n_sweeps: int, rng: np.random.Generator
) -> np.ndarray:
    """Lower Σ_i d_i G d_i' - 2 d_i l_i' over codes d_i, the rows of D; gives the new codes.

    Bits are taken in blocks drawn anew at each call, and each block is set to its exact best given
    the rest. A block changes only if that is a gain, so the sum never rises.
    """
    n_bits, dtype = D.shape[1], L.dtype
    width = max(size for size in range(1, BITS_AT_ONCE + 1) if n_bits % size == 0)
    blocks = rng.permutation(n_bits).reshape(-1, width)
    patterns = ((np.arange(2**width)[:, None] >> np.arange(width)) & 1) * 2.0 - 1.0
    within = G[blocks[:, :, None], blocks[:, None, :]]
    energies = np.einsum("pa,nab,pb->np", patterns, within, patterns, optimize=True)
    # Bits F of a block that flip add 4 Σ_{a in F} (d_a (l_a - d G_a) + Σ_{b in F} d_a d_b G_ab):
    # no pattern is a gain where each d_a (l_a - d G_a) is at least Σ_{b not a} |G_ab| - G_aa
    diagonal = np.einsum("naa->na", within)
    bounds = np.abs(within).sum(axis=2) - np.abs(diagonal) - diagonal
    D, G = D.astype(dtype), np.ascontiguousarray(G, dtype=dtype)
    DG, patterns = D @ G, np.ascontiguousarray(patterns.T, dtype=dtype)
    quadratic = G, within.astype(dtype), energies.astype(dtype), bounds.astype(dtype)
    fixed = (*quadratic, blocks, patterns, n_sweeps)
    run_rows(
        lambda first, last: _descend(D[first:last], DG[first:last], L[first:last], *fixed),
        np.arange(len(D) + 1),
    )
    return D


@compiled(nogil=True)
def _descend(D, DG, L, G, within, energies, bounds, blocks, patterns, n_sweeps):  # type: ignore[no-untyped-def]
    """Set the blocks of each row one after the other; DG = D G is kept up to date."""
    n_blocks, width = blocks.shape
    d, pull = np.empty(width, D.dtype), np.empty(width, D.dtype)
    energy = np.empty(patterns.shape[1], D.dtype)
    for i in range(len(D)):
        n_settled = 0  # blocks since the last one that changed
        for visit in range(n_sweeps * n_blocks):
            n = visit % n_blocks
            settled = True
            for a in range(width):
                bit = blocks[n, a]
                d[a], pull[a] = D[i, bit], L[i, bit] - DG[i, bit]
                settled &= d[a] * pull[a] >= bounds[n, a]
            if not settled:
                now = 0
                for a in range(width):
                    now += (d[a] > 0) << a
                    for c in range(width):  # give the block's own share back
                        pull[a] += within[n, a, c] * d[c]
                for p in range(len(energy)):  # an assignment of arrays compiles for seconds
                    energy[p] = energies[n, p]
                for a in range(width):
                    twice = 2 * pull[a]
                    for p in range(len(energy)):
                        energy[p] -= twice * patterns[a, p]
                lowest = energy[now] - abs(energy[now]) * 1e-6  # a tie, or nearly, changes nothing
                n_lower = 0
                for p in range(len(energy)):
                    n_lower += energy[p] < lowest
                settled = n_lower == 0
            n_settled += 1
            if not settled:
                n_settled = 0
                best = now
                for p in range(len(energy)):
                    if energy[p] < lowest:
                        best, lowest = p, energy[p]
                for a in range(width):
                    if (best ^ now) >> a & 1:
                        bit, step = blocks[n, a], -2 * d[a]
                        D[i, bit] += step
                        for c in range(len(G)):
                            DG[i, c] += step * G[bit, c]
            if n_settled == n_blocks:
                break
