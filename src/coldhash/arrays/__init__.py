"""Packed codes, deterministic products and compiled functions.

Where a process asks only once, NumPy takes the place of compiled code: numba takes longer to import
than a small answer takes without it. Both ways give the same bits.
"""

from __future__ import annotations

import sys

_MOST = 1 << 22  # operations; from here on compiled code is worth its import
_asks_once = False


def expect_one_answer() -> None:
    """Declare that this process asks little: the command line does."""
    global _asks_once
    _asks_once = True


def prefer_numpy(kernels: str, n_operations: int) -> bool:
    """Return whether to do without a module of compiled code: not where it is loaded already."""
    return _asks_once and n_operations < _MOST and kernels not in sys.modules
