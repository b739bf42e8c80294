"""Compiled functions, cached on disk for the next process where that is possible.

numba itself fails where compiled code cannot be cached: no writable folder, or a full disk. None of
its own threads are used, because GNU OpenMP ends a forked process whose parent has used them: a
function compiled with `nogil` runs on several threads by `coldhash.arrays.threads`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import event
from numba.core.caching import FunctionCache

compilations = event.RecordingListener()  # type: ignore[no-untyped-call]
event.register("numba:compile", compilations)  # type: ignore[no-untyped-call]


class _Cache(FunctionCache):
    """numba's cache, which ignores a full disk."""

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def compiled(*, internal: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function when it is first called, with numba's options.

    An `internal` one is for compiled functions only: it is compiled sooner, and kept as a part of
    them. Python can call its `py_func`.
    """

    def decorate(function: Any) -> Any:
        if internal:
            options.update(no_cpython_wrapper=True, no_cfunc_wrapper=True)
            return _refuse_python(njit(**options)(function), function)
        try:
            made = njit(cache=True, **options)(function)
        except RuntimeError:  # no folder for the cache
            return njit(**options)(function)
        if made is not function:  # the same where compilation is disabled
            made._cache = _Cache(function)  # type: ignore[no-untyped-call]
        return made

    return decorate


def _refuse_python(made: Any, function: Any) -> Any:
    """Raise an error where Python calls a function that has no code for that: it would crash."""

    def refuse(*arguments: Any, **named: Any) -> None:
        raise TypeError(f"only compiled functions can call {function.__qualname__}; use py_func")

    def add_overload(compilation: Any) -> None:  # for compiled callers, not for numba's own table
        made.overloads[tuple(compilation.signature.args)] = compilation

    if made is not function:  # the same where compilation is disabled
        made.add_overload, made._compile_for_args = add_overload, refuse
    return made
