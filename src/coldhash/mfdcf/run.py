"""One run of MFDCF's rounds: kept after every round, and gone on with where one was killed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coldhash.mfdcf.checkpoint import Checkpoint
from coldhash.mfdcf.local import CODES, MULTIPLY
from coldhash.mfdcf.problem import Problem
from coldhash.mfdcf.steps import State
from coldhash.partitions import Partitions

PLAIN = ("DtD", "R", "average", "Z", "multiplier")
BY_GROUP = ("W", "V")


@dataclass(eq=False)
class Run:
    """What the rounds work on, and where they are kept, if anywhere."""

    problem: Problem
    users: Partitions
    checkpoint: Checkpoint | None
    identity: dict[str, Any]  # settings and seed: what else decides about the result
    item_codes: np.ndarray | None = None  # to start from; None: random ones
    objective: list[float] = field(default_factory=list)

    def keep(
        self, problem: Problem, state: State, objective: list[float], rng: np.random.Generator
    ) -> None:
        """End a round: user codes leave their partitions and come back.

        They are all that the next round needs of the past, so a lost worker costs one round.
        """
        codes = list(self.users.each(CODES))
        self.users.put("B", codes)
        if self.checkpoint is None:
            return
        arrays = {name: getattr(state, name) for name in PLAIN}
        for name in BY_GROUP:
            arrays |= {f"{name}/{group}": one for group, one in getattr(state, name).items()}
        arrays |= {f"B/{at:08}": part for at, part in enumerate(codes)}
        known = {name: array for name, array in arrays.items() if array is not None}
        facts = {
            "of": self._identity(),
            "mu": state.mu,
            "ridges": {name: group.ridge for name, group in problem.groups.items()},
            "objective": objective,
            "rng": rng.bit_generator.state,
        }
        self.checkpoint.write(facts, known | {"D": state.D.astype(np.int8)})

    def resume(self, rng: np.random.Generator) -> State | None:
        """Take up a fit that was killed: the state after its last whole round."""
        kept = None if self.checkpoint is None else self.checkpoint.read(self._identity())
        if kept is None:
            return None
        facts, arrays = kept
        rng.bit_generator.state = facts["rng"]
        self.problem = self.problem.with_ridges(facts["ridges"])
        self.objective += facts["objective"]
        D = arrays["D"].astype(np.float32)
        by_group: dict[str, dict[str, Any]] = {
            name: {group: arrays.get(f"{name}/{group}") for group in self.problem.groups}
            for name in BY_GROUP
        }
        self.users.put("B", [arrays[name] for name in sorted(arrays) if name.startswith("B/")])
        list(self.users.each(MULTIPLY, D * self.problem.item_weights))
        plain = {name: arrays.get(name) for name in PLAIN}
        return State(D=D, mu=facts["mu"], **plain, **by_group)  # type: ignore[arg-type]

    def _identity(self) -> dict[str, Any]:
        """Say which fit this is: the settings, and the data by what they add up to."""
        groups = {name: group.counts for name, group in self.problem.groups.items()}
        start = None
        if self.item_codes is not None:
            start = hashlib.sha256(np.packbits(self.item_codes > 0).tobytes()).hexdigest()
        return self.identity | {"known": self.problem.known, "groups": groups, "start": start}
