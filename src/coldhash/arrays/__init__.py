"""Packed codes, deterministic products and compiled functions.

Where a process asks only once, NumPy takes the place of compiled code: numba takes longer to import
than a small answer takes without it. Both ways give the same bits.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from types import ModuleType

_MOST = 1 << 22  # operations; from here on compiled code is worth its import
_asks_once = False
_load = cache(import_module)


def expect_one_answer() -> None:
    """Declare that this process asks little: the command line does."""
    global _asks_once
    _asks_once = True


def load_kernels(name: str, n_operations: int) -> ModuleType | None:
    """Return a module of compiled code, and numba with it; None where NumPy is to take its place.

    That is where a process asks little, and has not loaded the module for something else.
    """
    if _asks_once and n_operations < _MOST and name not in sys.modules:
        return None
    return _load(name)
