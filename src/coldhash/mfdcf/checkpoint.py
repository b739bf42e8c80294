"""The last whole round of a fit, in one file: a fit that was killed goes on from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coldhash.errors import SettingError
from coldhash.recommender import model_file


@dataclass(frozen=True)
class Checkpoint:
    """A file in the layout of model files, replaced in one step."""

    path: Path

    def write(self, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Keep a round; whoever is killed now leaves the round before."""
        model_file.write(self.path, facts, arrays)

    def read(self, of: dict[str, Any]) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
        """Give the last round of the fit `of`, None if there is none yet."""
        if not self.path.exists():
            return None
        facts, arrays = model_file.read(self.path)
        if facts["of"] != of:
            raise SettingError(
                f"{self.path} was left by a fit with other settings or other data",
                hint="remove it, or give this fit another folder to work in",
            )
        return facts, arrays

    def clear(self) -> None:
        """Forget it, and what killed fits left of theirs: the fit is done, the folder its own."""
        for draft in self.path.parent.glob(f".{self.path.name}.*.part"):
            draft.unlink()
        self.path.unlink(missing_ok=True)
