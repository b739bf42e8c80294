"""Compiled functions: kept on disk for the next process where there is room, else compiled anew.

numba by itself fails where compiled code cannot be kept: no writable folder, or a full disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache


class _Kept(FunctionCache):
    """numba's cache, for which a full disk is no error."""

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function when it is first called, with numba's options."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            made = njit(cache=True, **options)(function)
        except RuntimeError:  # nowhere to keep it
            return njit(**options)(function)
        if made is not function:  # as it is where numba is told not to compile
            made._cache = _Kept(function)  # type: ignore[no-untyped-call]
        return made

    return decorate
