"""Checks of arrays that come from a file, and of the memory that arrays need."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping

import numpy as np

from coldhash.errors import DataError, ModelFileError

_CHECKED = 1 << 20  # numbers checked at a time
Forms = dict[str, tuple[str | int, ...]]  # of arrays, as `take` checks them


def take(arrays: Mapping[str, np.ndarray], forms: Forms, prefix: str = "") -> dict[str, np.ndarray]:
    """Return the arrays that `forms` names, or raise an error if one has another form.

    A form is the kinds or types of numbers that may be there, such as "f" or "i4 i8", and then the
    size of each axis: a number, or a name that stands for the same size wherever it occurs.
    Compiled code takes no half precision, so that is never allowed. In `arrays`, the names begin
    with `prefix`.

    Examples
    --------
    >>> arrays = {"left": np.ones((2, 3)), "right": np.ones((4, 5))}
    >>> take(arrays, {"left": ("f", 2, "rank"), "right": ("f", "rank", 5)})
    Traceback (most recent call last):
        ...
    coldhash.errors.ModelFileError: 'right' is of shape (4, 5) instead of (3, 5)
    """
    sizes: dict[str | int, int] = {}
    for own, (kinds, *axes) in forms.items():
        name = prefix + own
        if name not in arrays:
            raise ModelFileError(f"{name!r} is missing")
        shape, dtype = arrays[name].shape, arrays[name].dtype
        if len(shape) == len(axes):
            for axis, size in zip(axes, shape, strict=True):
                sizes.setdefault(axis, axis if isinstance(axis, int) else size)
        wanted = tuple(sizes.get(axis, axis) for axis in axes)
        if shape != wanted:
            raise ModelFileError(f"{name!r} is of shape {shape} instead of {wanted}")
        if not {dtype.kind, dtype.str[1:]} & set(str(kinds).split()) or dtype == np.float16:
            raise ModelFileError(f"{name!r} is of type {dtype}")
    return {name: arrays[prefix + name] for name in forms}


def part_of(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the arrays whose names begin with a prefix, named without it."""
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}


def check_places(name: str, places: np.ndarray, end: int) -> None:
    """Raise an error if a place is outside of 0 to `end`."""
    if places.size and not 0 <= places.min() <= places.max() < end:
        raise ModelFileError(f"{name!r} points outside of 0 to {end - 1}")


def check_finite(arrays: Mapping[str, np.ndarray]) -> None:
    """Raise an error at NaN or infinity, block by block: a model may be larger than memory."""
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            flat = array.reshape(-1)
            for start in range(0, len(flat), _CHECKED):
                if not np.isfinite(flat[start : start + _CHECKED]).all():
                    raise ModelFileError(f"{name!r} holds NaN or infinity")


def check_computed(computed: np.ndarray) -> None:
    """Raise an error if an answer is NaN or infinite: every number in a model may be finite."""
    if not (np.isfinite(np.vdot(computed, computed)) or np.isfinite(computed).all()):
        raise DataError(
            "an answer is not finite: numbers in the model are too large",
            hint="fit the model again, or use another model file",
        )


def check_memory(n_bytes: int, what: str) -> None:
    """Raise an error before an allocation that cannot succeed on this machine."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    memory = memory if limit == resource.RLIM_INFINITY else min(memory, limit)
    if n_bytes > memory:
        raise DataError(
            f"{what} would take {n_bytes / 1e9:,.1f} GB of the {memory / 1e9:,.1f} GB there are",
            hint="fewer users or columns; mfdcf fits from disk (coldhash prepare)",
        )
