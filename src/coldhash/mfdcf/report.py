"""What a fit says about itself, and what it keeps of its last round, to go on if it is killed."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from coldhash.arrays.codes import pack, signs
from coldhash.errors import CodeCollapse, SettingError
from coldhash.mfdcf.equations import FitState, set_items
from coldhash.mfdcf.problem import REPORTED, Problem
from coldhash.recommender import model_file

Callback = Callable[[int, float], None]  # called with the round, from 0, and the objective after it

COLLAPSED = 0.05  # distinct codes per distinct profile


class Rounds:
    """The rounds of one fit: objective, seconds by step, and a checkpoint of the last round.

    The checkpoint is a file in the layout of model files, replaced in one step; without a path,
    nothing is kept. `identity` is what tells fits apart: settings, seed, and what the data add up
    to.
    """

    def __init__(self, callback: Callback | None) -> None:
        self.objective: list[float] = []
        self.seconds: dict[str, float] = {}
        self.path: Path | None = None
        self.identity: dict[str, object] = {}
        self._callback, self._last = callback, time.perf_counter()

    def mark(self, step: str) -> None:
        """Book the time since the last mark on a step."""
        now = time.perf_counter()
        self.seconds[step] = self.seconds.get(step, 0.0) + now - self._last
        self._last = now

    def end(self, objective: float, state: FitState, rng: np.random.Generator) -> None:
        """Keep what the next round needs of this one, and pass the objective to the callback."""
        self.objective.append(objective)
        if self.path is not None:
            arrays = {"D": state.D.astype(np.int8), "average": state.average}
            arrays |= {f"V/{name}": V for name, V in state.V.items() if V is not None}
            arrays |= {f"B/{at:08}": part for at, part in enumerate(state.codes)}
            facts = {
                "identity": self.identity,
                "mu": state.mu,
                "alpha": state.alpha,
                "length": state.length,
                "objective": self.objective,
                "rng": rng.bit_generator.state,
            }
            model_file.write(self.path, facts, arrays)
        if self._callback is not None:
            self._callback(len(self.objective) - 1, objective)

    def resume(self, problem: Problem, state: FitState, rng: np.random.Generator) -> None:
        """Go to the end of the last complete round, if one was kept."""
        if self.path is None or not self.path.exists():
            return
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
        rng.bit_generator.state, self.objective = facts["rng"], facts["objective"]

    def clear(self) -> None:
        """Remove the file, and drafts of it that killed fits left: the folder is this fit's own."""
        if self.path is not None:
            for draft in self.path.parent.glob(f".{self.path.name}.*.part"):
                shutil.rmtree(draft)
            self.path.unlink(missing_ok=True)


def code_report(vectors: np.ndarray) -> dict[str, Any]:
    """Describe the codes of vectors: how many differ, how balanced and how alike the bits are."""
    codes = signs(vectors[:REPORTED], np.float32)
    mean, n_bits = codes.mean(axis=0, dtype=np.float64), codes.shape[1]
    # sums of +1 and -1 are exact in float32, so they do not depend on the order of the product
    covariance = (codes.T @ codes).astype(np.float64) / max(len(codes), 1) - np.outer(mean, mean)
    spread = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    correlation = np.abs(covariance / np.outer(spread, spread))
    others = correlation.sum() - np.trace(correlation)
    return {
        "distinct": n_distinct(pack(codes)),
        "of": len(codes),
        "mean_imbalance": float(np.abs(mean).mean()),
        "mean_correlation": float(others / max(n_bits * (n_bits - 1), 1)),
    }


def n_distinct(rows: np.ndarray) -> int:
    """Count the rows that differ."""
    rows = np.ascontiguousarray(rows)
    return len(set(rows.view(f"V{rows.strides[0]}").ravel().tolist()))


def warn_of_collapse(stranger_vectors: np.ndarray) -> str | None:
    """Warn if people who differ get the same code: by Hamming they get the same list."""
    profiles = n_distinct(stranger_vectors[:REPORTED])
    distinct = n_distinct(pack(signs(stranger_vectors[:REPORTED])))
    if profiles < 20 or distinct >= COLLAPSED * profiles:
        return None
    message = (
        f"{profiles:,} different profiles of strangers have only {distinct:,} codes; "
        "hint: score='real' tells them apart, or use more bits"
    )
    warnings.warn(message, CodeCollapse, stacklevel=5)
    return message
