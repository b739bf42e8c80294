"""Where the experiments that come with coldhash are."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def experiments() -> Path:
    """Give the folder: inside an installed package, at the root of a checkout."""
    inside = PACKAGE / "experiments"
    return inside if inside.is_dir() else PACKAGE.parents[1] / "experiments"
