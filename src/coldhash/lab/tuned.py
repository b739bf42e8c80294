"""What a study found: every trial, the best one, and how sure one can be of it."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from coldhash.files import replace_text
from coldhash.lab.study import Study

SHOWN = 10  # trials in the table
LIBRARIES = ("coldhash", "numpy", "scipy", "numba", "optuna")

State = Literal["complete", "pruned", "refused"]


@dataclass(frozen=True)
class Attempt:
    """One trial. Its value is the mean over the folds it was judged on, 1 for popularity.

    Examples
    --------
    >>> Attempt({"ridge": 50.0}, "complete", value=1.2, by_fold=(1.1, 1.3), seconds=0.1).state
    'complete'
    """

    settings: dict[str, Any]
    state: State
    value: float | None
    by_fold: tuple[float, ...]
    seconds: float
    is_default: bool = False
    message: str | None = None  # why it was refused


@dataclass(frozen=True)
class FoldFacts:
    """What a value was measured on, and the accuracy of popularity that it is a multiple of."""

    dataset: str
    fold: int
    n_train: int
    n_cold: int
    popularity: float


@dataclass(frozen=True)
class Tuned:
    """The finished trials of a study, in the order they were made; at least one is complete.

    Examples
    --------
    >>> from coldhash.lab.study import Range
    >>> space = {"ridge": Range(low=1.0, high=1000.0)}
    >>> study = Study(model="ridge", datasets=["sample"], space=space)
    >>> tried = (
    ...     Attempt({"ridge": 400.0}, "complete", 1.1, (1.1,), seconds=0.1, is_default=True),
    ...     Attempt({"ridge": 50.0}, "complete", 1.2, (1.2,), seconds=0.1),
    ... )
    >>> Tuned(study, (), tried).best.settings
    {'ridge': 50.0}
    """

    study: Study
    folds: tuple[FoldFacts, ...]
    attempts: tuple[Attempt, ...]

    @property
    def best(self) -> Attempt:
        """The complete trial of the highest value; of equal ones the first."""
        complete = [each for each in self.attempts if each.state == "complete"]
        return max(complete, key=lambda each: each.value or 0.0)

    @property
    def default(self) -> Attempt | None:
        """The trial of the model's defaults, unless they were refused."""
        return next((a for a in self.attempts if a.is_default and a.state == "complete"), None)

    @property
    def improvement(self) -> float | None:
        """How much the best value is above that of the defaults."""
        if self.default is None:
            return None
        return float(np.mean(self._differences(self.default)))

    @property
    def noise(self) -> float | None:
        """How far best minus default strays from fold to fold; None for one fold.

        The standard deviation within a data set: that one gains more than another is no noise.
        """
        if self.default is None or self.study.folds < 2:
            return None
        by_dataset = self._differences(self.default).reshape(self.study.folds, -1)
        return float(np.sqrt(np.var(by_dataset, axis=0, ddof=1).mean()))

    def _differences(self, default: Attempt) -> np.ndarray:
        return np.subtract(self.best.by_fold, default.by_fold)

    def to_dict(self) -> dict[str, Any]:
        """Give everything in plain values; nothing tells of the machine but versions."""
        return {
            "study": self.study.model_dump(mode="json"),
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in LIBRARIES},
            "folds": [asdict(fold) for fold in self.folds],
            "best": {"settings": self.best.settings, "value": self.best.value},
            "default": self.default
            and {"settings": self.default.settings, "value": self.default.value},
            "improvement": self.improvement,
            "noise": self.noise,
            "trials": [asdict(attempt) for attempt in self.attempts],
        }

    def to_markdown(self) -> str:
        """Show the best trials in a table, the defaults marked, and what tuning brought."""
        study, names = self.study, list(self.study.space)
        ranked = sorted(self.attempts, key=lambda a: (a.state != "complete", -(a.value or 0.0)))
        shown = [a for a in ranked[:SHOWN] if a.state != "refused"]
        shown += [a for a in ranked[SHOWN:] if a.is_default]
        columns = ["trial", *names, "value", "folds", "seconds"]
        lines = [
            f"# Tuning {study.model}",
            "",
            f"Accuracy@{study.k} for strangers over that of popularity, mean of "
            f"{len(self.folds)} folds ({', '.join(study.datasets)}).",
            "",
            _row(columns),
            _row(["---"] + ["---:"] * (len(columns) - 1)),
            *(_row(self._cells(attempt, names)) for attempt in shown),
            "",
            self._in_words(),
        ]
        return "\n".join(lines)

    def _cells(self, attempt: Attempt, names: list[str]) -> list[str]:
        settings = [_short(attempt.settings[name]) for name in names]
        number = f"{self.attempts.index(attempt)}{' (defaults)' if attempt.is_default else ''}"
        judged = f"{len(attempt.by_fold)}/{len(self.folds)}"
        return [number, *settings, _short(attempt.value, 4), judged, f"{attempt.seconds:.1f}"]

    def _in_words(self) -> str:
        counts = {state: 0 for state in ("complete", "pruned", "refused")}
        for attempt in self.attempts:
            counts[attempt.state] += 1
        told = ", ".join(f"{n} {state}" for state, n in counts.items() if n)
        text = f"{len(self.attempts)} trials: {told}."
        if self.improvement is None:
            return f"{text} The defaults were refused."
        noise = "" if self.noise is None else f", noise {self.noise:.4f}"
        return f"{text} Best over defaults: {self.improvement:+.4f}{noise}."

    def save(self, folder: Path) -> None:
        """Write MODEL.json and MODEL.md, each in one step."""
        report = json.dumps(self.to_dict(), indent=1, ensure_ascii=False)
        for ending, text in (("json", report), ("md", self.to_markdown())):
            replace_text(folder / f"{self.study.model}.{ending}", text + "\n")


def _short(value: Any, digits: int = 3) -> str:
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
