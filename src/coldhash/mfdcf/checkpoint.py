"""The last complete round of a fit, in one file: a fit that was killed goes on from it."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coldhash.errors import SettingError
from coldhash.mfdcf.equations import FitState, start
from coldhash.mfdcf.problem import Problem
from coldhash.partitions import Partitions
from coldhash.recommender import model_file


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where the rounds of one fit are kept, if anywhere.

    Parameters
    ----------
    path
        A file in the layout of model files, replaced in one step; None: nothing is kept.
    settings
        Settings and seed: with the data, they identify the fit.
    item_codes
        The codes that the fit was told to start from.
    """

    path: Path | None
    settings: dict[str, Any]
    item_codes: np.ndarray | None = None

    def save(
        self,
        users: Partitions,
        problem: Problem,
        state: FitState,
        objective: list[float],
        rng: np.random.Generator,
    ) -> None:
        """End a round: user codes leave their partitions and come back.

        They are all that the next round needs of this one, so a lost worker costs one round.
        """
        codes = list(users.map(lambda B: B, state.B))
        state.B = users.scatter(codes)
        if self.path is None:
            return
        arrays = {f"W/{name}": W for name, W in state.W.items()}
        arrays |= {f"V/{name}": V for name, V in state.V.items() if V is not None}
        arrays |= {f"relevance/{name}": g.relevance for name, g in problem.groups.items()}
        arrays |= {f"B/{at:08}": part for at, part in enumerate(codes)}
        arrays["D"] = state.D.astype(np.int8)
        facts = {
            "identity": self._identity(problem),
            "mu": state.mu,
            "alpha": state.alpha,
            "length": state.length,
            "ridges": {name: group.ridge for name, group in problem.groups.items()},
            "objective": objective,
            "rng": rng.bit_generator.state,
        }
        model_file.write(self.path, facts, arrays)

    def resume(
        self, users: Partitions, problem: Problem, rng: np.random.Generator
    ) -> tuple[Problem, FitState, list[float]] | None:
        """Return where the last complete round ended, None if there was none."""
        if self.path is None or not self.path.exists():
            return None
        facts, arrays = model_file.read(self.path)
        if facts.get("identity") != self._identity(problem):
            raise SettingError(
                f"{self.path} was left by a fit with other settings or other data",
                hint="remove it, or give this fit another folder to work in",
            )
        rng.bit_generator.state = facts["rng"]
        codes = [arrays[name] for name in sorted(arrays) if name.startswith("B/")]
        state = start(users, problem, arrays["D"].astype(np.float32), codes)
        state.mu, state.alpha, state.length = facts["mu"], facts["alpha"], facts["length"]
        state.W = {name: arrays[f"W/{name}"] for name in problem.groups}
        state.V = {name: arrays.get(f"V/{name}") for name in problem.groups}
        groups = {
            name: replace(group, ridge=facts["ridges"][name], relevance=arrays[f"relevance/{name}"])
            for name, group in problem.groups.items()
        }
        return replace(problem, groups=groups), state, facts["objective"]

    def clear(self) -> None:
        """Remove the file, and drafts of it that killed fits left: the folder is this fit's own."""
        if self.path is not None:
            for draft in self.path.parent.glob(f".{self.path.name}.*.part"):
                shutil.rmtree(draft)
            self.path.unlink(missing_ok=True)

    def _identity(self, problem: Problem) -> dict[str, Any]:
        """Identify the fit: by its settings, and by what its data add up to."""
        groups = {name: group.counts for name, group in problem.groups.items()}
        start_of = None
        if self.item_codes is not None:
            start_of = hashlib.sha256(np.packbits(self.item_codes > 0).tobytes()).hexdigest()
        return self.settings | {"known": problem.known, "groups": groups, "start": start_of}
