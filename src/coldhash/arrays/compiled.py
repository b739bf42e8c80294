"""Compiled functions, cached on disk for the next process where that is possible.

numba itself fails where compiled code cannot be cached: no writable folder, or a full disk. And
GNU OpenMP ends a forked process whose parent has used its threads: there, parallel functions run on
one thread, with the same result, because no loop adds up over threads.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import cache, wraps
from types import FunctionType
from typing import Any

from numba import njit, threading_layer  # type: ignore[attr-defined]
from numba.core import event
from numba.core.caching import FunctionCache

compilations = event.RecordingListener()  # type: ignore[no-untyped-call]
event.register("numba:compile", compilations)  # type: ignore[no-untyped-call]


class _Cache(FunctionCache):
    """numba's cache, which ignores a full disk."""

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


_without_threads = False  # in a process forked from one that has used OpenMP


def _check_threads() -> None:
    global _without_threads
    with contextlib.suppress(ValueError):  # no threads were started
        _without_threads = threading_layer() == "omp"


os.register_at_fork(after_in_child=_check_threads)


def compiled(*, internal: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function when it is first called, with numba's options.

    An `internal` one is for compiled functions only: it is compiled sooner, and kept as a part of
    them. Python can call its `py_func`.
    """

    def decorate(function: Any) -> Any:
        if internal:
            options.update(no_cpython_wrapper=True, no_cfunc_wrapper=True)
            return _refuse_python(njit(**options)(function), function)
        made = _compile(function, options)
        return _make_fork_safe(made, function) if options.get("parallel") else made

    return decorate


def _compile(function: Any, options: dict[str, Any]) -> Any:
    try:
        made = njit(cache=True, **options)(function)
    except RuntimeError:  # no folder for the cache
        return njit(**options)(function)
    if made is not function:  # the same where compilation is disabled
        made._cache = _Cache(function)  # type: ignore[no-untyped-call]
    return made


def _refuse_python(made: Any, function: Any) -> Any:
    """Raise an error where Python calls a function that has no code for that: it would crash."""

    def refuse(*arguments: Any, **named: Any) -> None:
        raise TypeError(f"only compiled functions can call {function.__qualname__}; use py_func")

    def add_overload(compilation: Any) -> None:  # for compiled callers, not for numba's own table
        made.overloads[tuple(compilation.signature.args)] = compilation

    if made is not function:  # the same where compilation is disabled
        made.add_overload, made._compile_for_args = add_overload, refuse
    return made


def _make_fork_safe(made: Any, function: Any) -> Any:
    """Call the parallel function, or the same one on one thread where threads cannot be used."""

    @cache
    def on_one_thread() -> Any:
        name = f"{function.__qualname__}_alone"  # the cache knows functions by their names
        copy = FunctionType(function.__code__, function.__globals__, name)
        copy.__qualname__ = name
        return _compile(copy, {"nogil": True})

    @wraps(function)
    def run(*arguments: Any) -> Any:
        return (on_one_thread() if _without_threads else made)(*arguments)

    run.py_func, run.on_one_thread = function, on_one_thread  # type: ignore[attr-defined]
    return run
