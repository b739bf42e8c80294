"""The last complete round of a fit, in one file: a fit that was killed goes on from it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coldhash.errors import SettingError
from coldhash.mfdcf.equations import FitState, set_items
from coldhash.mfdcf.problem import Problem
from coldhash.recommender import model_file


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where the rounds of one fit are kept, if anywhere.

    Parameters
    ----------
    path
        A file in the layout of model files, replaced in one step; None: nothing is kept.
    identity
        What identifies the fit: settings, seed, and what its data add up to.
    """

    path: Path | None
    identity: dict[str, object]

    def save(self, state: FitState, losses: list[float], rng: np.random.Generator) -> None:
        """Keep what the next round needs of this one."""
        if self.path is None:
            return
        arrays = {"D": state.D.astype(np.int8), "average": state.average}
        arrays |= {f"V/{name}": V for name, V in state.V.items() if V is not None}
        arrays |= {f"B/{at:08}": part for at, part in enumerate(state.codes)}
        facts = {
            "identity": self.identity,
            "mu": state.mu,
            "alpha": state.alpha,
            "length": state.length,
            "objective": losses,
            "rng": rng.bit_generator.state,
        }
        model_file.write(self.path, facts, arrays)

    def resume(self, problem: Problem, state: FitState, rng: np.random.Generator) -> list[float]:
        """Go to the end of the last complete round, if there was one; return what (9) was."""
        if self.path is None or not self.path.exists():
            return []
        facts, arrays = model_file.read(self.path)
        if facts.get("identity") != self.identity:
            raise SettingError(
                f"{self.path} was left by a fit with other settings or other data",
                hint="remove it, or give this fit another folder to work in",
            )
        codes = [arrays[name] for name in sorted(arrays) if name.startswith("B/")]
        state.B, state.average = problem.users.scatter(codes), arrays["average"]
        state.V = {name: arrays.get(f"V/{name}") for name in problem.groups}
        state.mu, state.alpha, state.length = facts["mu"], facts["alpha"], facts["length"]
        set_items(problem, state, arrays["D"].astype(np.float32))
        rng.bit_generator.state = facts["rng"]
        return list(facts["objective"])

    def clear(self) -> None:
        """Remove the file, and drafts of it that killed fits left: the folder is this fit's own."""
        if self.path is not None:
            for draft in self.path.parent.glob(f".{self.path.name}.*.part"):
                shutil.rmtree(draft)
            self.path.unlink(missing_ok=True)
