"""Compiled functions, cached on disk for the next process, and sums of 16 numbers in registers.

numba itself fails where compiled code cannot be cached: no writable folder, or a full disk. None of
its own threads are used, because GNU OpenMP ends a forked process whose parent has used them: a
function compiled with `nogil` runs on several threads by `coldhash.arrays.threads`.

The sums are for compiled functions, because LLVM leaves those of an array in memory. Each of their
functions is plain Python, too, which rounds in the same way.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils, event, types
from numba.core.caching import FunctionCache
from numba.extending import lower_builtin, models, register_model, type_callable

from coldhash.arrays.products import LANES

compilations = event.RecordingListener()
event.register("numba:compile", compilations)


class _Cache(FunctionCache):
    """numba's cache, which ignores a full disk."""

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function when it is first called, with numba's options."""

    def decorate(function: Any) -> Any:
        try:
            made = njit(cache=True, **options)(function)
        except RuntimeError:  # no folder for the cache
            return njit(**options)(function)
        if made is not function:  # the same where compilation is disabled
            made._cache = _Cache(function)
        return made

    return decorate


class _Lanes(types.Type):
    """The type of 16 numbers."""

    def __init__(self, dtype: types.Type) -> None:
        super().__init__(name=f"lanes({dtype})")
        self.dtype = dtype


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, of):
        number = manager.lookup(of.dtype).get_value_type()
        super().__init__(manager, of, ir.VectorType(number, LANES))


def no_lanes(matrix: np.ndarray) -> np.ndarray:
    """Return zeros of the type of a matrix."""
    return np.zeros(LANES, matrix.dtype)


def add_multiple(
    total: np.ndarray, value: np.generic, matrix: np.ndarray, row: int | np.uint64, first: int
) -> np.ndarray:
    """Return the total plus a value times 16 numbers of a row."""
    return np.asarray(total + value * matrix[row, first : first + LANES])


def add_signed(total: np.ndarray, value: np.generic, bits: np.uint64) -> np.ndarray:
    """Return the total plus a value where the lowest 16 bits are set, minus it elsewhere."""
    some = (bits >> np.arange(LANES, dtype=np.uint64)) & np.uint64(1)
    return np.asarray(np.where(some, total + value, total - value))


def put_lanes(total: np.ndarray, matrix: np.ndarray, row: int, first: int) -> None:
    """Write 16 numbers into a row."""
    matrix[row, first : first + LANES] = total


def _lower(function, returned):
    type_callable(function)(lambda _: returned)
    return lower_builtin(function, types.VarArg(types.Any))


def repeat(builder, value, n_lanes):
    """Write the code of a vector that has a number in each of its lanes."""
    first = ir.Constant(ir.VectorType(value.type, n_lanes), ir.Undefined)
    first = builder.insert_element(first, value, ir.IntType(32)(0))
    places = ir.VectorType(ir.IntType(32), n_lanes)([0] * n_lanes)
    return builder.shuffle_vector(first, first, places)


def _place(context, builder, of, matrix, at, lanes):
    assert of.layout == "C"
    made = context.make_array(of)(context, builder, matrix)
    place = cgutils.get_item_pointer(context, builder, of, made, at)
    return builder.bitcast(place, lanes.as_pointer())


@_lower(no_lanes, lambda matrix: _Lanes(matrix.dtype))
def _lower_zeros(context, builder, signature, _arguments):
    return context.get_constant_null(signature.return_type)


@_lower(add_multiple, lambda total, value, matrix, row, first: total)
def _lower_multiple(context, builder, signature, arguments):
    total, value, matrix, *at = arguments
    value = context.cast(builder, value, signature.args[1], signature.args[0].dtype)
    place = _place(context, builder, signature.args[2], matrix, at, total.type)
    return builder.fadd(
        total, builder.fmul(repeat(builder, value, LANES), builder.load(place, align=4))
    )


@_lower(add_signed, lambda total, value, bits: total)
def _lower_signed(context, builder, _signature, arguments):
    total, value, bits = arguments
    some = builder.trunc(bits, ir.IntType(LANES))
    some = builder.bitcast(some, ir.VectorType(ir.IntType(1), LANES))
    plus, minus = repeat(builder, value, LANES), repeat(builder, builder.fneg(value), LANES)
    return builder.fadd(total, builder.select(some, plus, minus))


@_lower(put_lanes, lambda total, matrix, row, first: types.none)
def _lower_put(context, builder, signature, arguments):
    total, matrix, *at = arguments
    place = _place(context, builder, signature.args[1], matrix, at, total.type)
    builder.store(total, place, align=4)
    return context.get_dummy_value()
