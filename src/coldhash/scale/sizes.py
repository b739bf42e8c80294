"""Sizes as people write them."""

from __future__ import annotations

import re

from coldhash.errors import SettingError

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
BINARY = {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def n_bytes_of(size: int | str | None) -> int:
    """Turn 2_000_000_000, "2GB" or "1.5 GiB" into bytes."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", str(size))
    units = UNITS | BINARY
    try:
        if found is not None and found[2].upper() in units and float(found[1]) > 0:
            return int(float(found[1]) * units[found[2].upper()])
    except ValueError:
        pass
    raise SettingError(f"{size!r} is no size", hint="such as 2GB or 512MB")
