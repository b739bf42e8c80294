"""Descent over bits, shared by the discrete methods.

Rows do not know of each other, so the result is the same bit for bit at any number of threads.
"""

from __future__ import annotations

import numpy as np

from coldhash.arrays.compiled import add_multiple, compiled, no_lanes, put_lanes
from coldhash.arrays.products import LANES
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
    # all blocks are as wide as the widest: what is beyond their width is 0 and never flips
    inside = np.arange(BITS_AT_ONCE) < width
    blocks = np.zeros((n_bits // width, BITS_AT_ONCE), np.uint64)
    blocks[:, :width] = rng.permutation(n_bits).reshape(-1, width)
    patterns = ((np.arange(LANES)[:, None] >> np.arange(BITS_AT_ONCE)) & 1) * 2.0 - 1.0
    patterns *= inside
    within = G[blocks[:, :, None], blocks[:, None, :]] * (inside[:, None] & inside)
    energies = np.einsum("pa,nab,pb->np", patterns, within, patterns, optimize=True)
    # Bits F of a block that flip add 4 Σ_{a in F} (d_a (l_a - d G_a) + Σ_{b in F} d_a d_b G_ab):
    # no pattern is a gain where each d_a (l_a - d G_a) is at least Σ_{b not a} |G_ab| - G_aa
    diagonal = np.einsum("naa->na", within)
    bounds = np.where(inside, np.abs(within).sum(axis=2) - np.abs(diagonal) - diagonal, -np.inf)
    D, G = D.astype(dtype), np.ascontiguousarray(G, dtype=dtype)
    wide = np.zeros((len(G), -(-n_bits // LANES) * LANES), dtype)
    wide[:, :n_bits], DG = G, np.zeros((len(D), wide.shape[1]), dtype)
    np.matmul(D, G, out=DG[:, :n_bits])
    energies, patterns = (np.ascontiguousarray(each, dtype) for each in (energies, patterns.T))
    quadratic = wide, within.astype(dtype), energies, bounds.astype(dtype)
    fixed = (*quadratic, blocks, width, patterns, n_sweeps)
    run_rows(
        lambda first, last: _descend(D[first:last], DG[first:last], L[first:last], *fixed),
        np.arange(len(D) + 1),
    )
    return D


@compiled(nogil=True)
def _descend(D, DG, L, G, within, energies, bounds, blocks, width, patterns, n_sweeps):  # type: ignore[no-untyped-def]
    """Set the blocks of each row one after the other; DG = D G is kept up to date."""
    d, pull = np.empty(BITS_AT_ONCE, D.dtype), np.empty(BITS_AT_ONCE, D.dtype)
    energy, once = np.empty((1, LANES), D.dtype), D.dtype.type(1)
    for i in range(len(D)):
        n, n_settled = -1, 0  # n_settled: blocks since the last one that changed
        for _ in range(n_sweeps * len(blocks)):
            n = n + 1 if n + 1 < len(blocks) else 0
            settled = True
            for a in range(BITS_AT_ONCE):
                bit = blocks[n, a]
                d[a], pull[a] = D[i, bit], L[i, bit] - DG[i, bit]
                settled &= d[a] * pull[a] >= bounds[n, a]
            if not settled:
                now = 0
                for a in range(BITS_AT_ONCE):
                    now += (a < width and d[a] > 0) << a
                    for c in range(BITS_AT_ONCE):  # give the block's own share back
                        pull[a] += within[n, a, c] * d[c]
                lanes = add_multiple(no_lanes(energies), once, energies, n, 0)
                for a in range(BITS_AT_ONCE):
                    lanes = add_multiple(lanes, -2 * pull[a], patterns, a, 0)
                put_lanes(lanes, energy, 0, 0)
                # a tie, or nearly, changes nothing
                best, lowest = now, energy[0, now] - abs(energy[0, now]) * 1e-6
                for p in range(LANES):
                    if energy[0, p] < lowest:
                        best, lowest = p, energy[0, p]
                settled = best == now
            n_settled += 1
            if not settled:
                n_settled = 0
                for a in range(width):
                    if (best ^ now) >> a & 1:
                        bit, step = blocks[n, a], -2 * d[a]
                        D[i, bit] += step
                        for c in range(0, G.shape[1], LANES):
                            lanes = add_multiple(no_lanes(DG), once, DG, i, c)
                            put_lanes(add_multiple(lanes, step, G, bit, c), DG, i, c)
            if n_settled == len(blocks):
                break
