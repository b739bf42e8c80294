"""Parse sizes such as "2GB", and check whether memory can hold an array."""

from __future__ import annotations

import os
import re
import resource

from coldhash.errors import DataError, SettingError

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def n_bytes_of(size: int | str | None) -> int:
    """Return the bytes of 2_000_000_000, "2GB" or "1.5 GiB"."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", str(size))
    try:
        if found is not None and found[2].upper() in _UNITS and float(found[1]) > 0:
            return int(float(found[1]) * _UNITS[found[2].upper()])
    except ValueError:
        pass
    raise SettingError(f"{size!r} is not a size", hint="such as 2GB or 512MB")


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
