"""What every benchmark shares: options, a table of ratios, JSON, and the exit code."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass
class Row:
    """One figure: ours beside a peer's, their ratio, and the target for it."""

    what: str
    ours: float
    peer: float
    target: str  # such as "<= 0.2"

    @property
    def ratio(self) -> float:
        """Ours in terms of the peer's."""
        return self.ours / self.peer if self.peer else float("nan")

    @property
    def holds(self) -> bool:
        """Whether the target is met."""
        sign, bound = self.target.split()
        return self.ratio <= float(bound) if sign == "<=" else self.ratio >= float(bound)


def parser(about: str) -> argparse.ArgumentParser:
    """Know the options that every benchmark takes."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument("--quick", action="store_true", help="smaller sizes, fewer repeats")
    made.add_argument("--out", type=Path, help="write the table as JSON")
    made.add_argument(
        "--data", type=Path, default=os.environ.get("COLDHASH_DATA"), help="folder of the data sets"
    )
    return made


def options(about: str) -> argparse.Namespace:
    """Parse what every benchmark takes."""
    return parser(about).parse_args()


def best_times(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Time functions in turns, so that noise meets all alike; gives the best time of each."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def finish(rows: list[Row], out: Path | None) -> None:
    """Print the table, write it, and exit with 1 where a target is missed."""
    width = max(len(row.what) for row in rows)
    print(f"{'what':{width}}  {'ours':>10}  {'peer':>10}  {'ratio':>8}  {'target':>9}  holds")
    for row in rows:
        print(
            f"{row.what:{width}}  {row.ours:10.4g}  {row.peer:10.4g}  {row.ratio:8.3f}  "
            f"{row.target:>9}  {'yes' if row.holds else 'NO'}"
        )
    if out is not None:
        facts = {
            "machine": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "rows": [asdict(row) | {"ratio": row.ratio, "holds": row.holds} for row in rows],
        }
        out.write_text(json.dumps(facts, indent=1))
    sys.exit(0 if all(row.holds for row in rows) else 1)
