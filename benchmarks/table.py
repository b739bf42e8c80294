"""What every benchmark shares: options, a table of ratios, JSON, and the exit code."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

LOAD = os.getloadavg()[0]  # of the machine before the benchmark: how far to trust its times


@dataclass
class Row:
    """One figure: ours beside a peer's, their ratio, and the target for it."""

    what: str
    ours: float
    peer: float
    target: str  # such as "<= 0.2"
    against: str = ""  # the package that the peer is of, as pip calls it; none for a fixed bound
    family: str = ""  # rows of one family share a line of docs/benchmarks.md

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


def options(about: str, needs_data: bool = False) -> argparse.Namespace:
    """Parse what every benchmark takes."""
    args = parser(about).parse_args()
    if needs_data and args.data is None:
        sys.exit("say where the data sets are: --data FOLDER or COLDHASH_DATA")
    return args


def best_times(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Time functions in turns, so that noise meets all alike; gives the best time of each."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


@dataclass(frozen=True)
class Cost:
    """What a command took."""

    seconds: float
    processor_seconds: float
    peak: float  # bytes


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """Fit seconds ~ size ** exponent."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def run_python(*arguments: object) -> Cost:
    """Run Python with these arguments in a process of its own."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, *map(str, arguments)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(map(str, arguments))}")
    seconds = time.perf_counter() - begin
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024.0)


def finish(
    rows: list[Row], out: Path | None, beside: list[dict[str, object]] | None = None
) -> None:
    """Print the table, write it, and exit with 1 where a target is missed.

    `beside` is a second table, of methods side by side without targets: the caller prints it.
    """
    width = max((len(row.what) for row in rows), default=0)
    if rows:
        print(f"{'what':{width}}  {'ours':>10}  {'peer':>10}  {'ratio':>8}  {'target':>9}  holds")
    for row in rows:
        print(
            f"{row.what:{width}}  {row.ours:10.4g}  {row.peer:10.4g}  {row.ratio:8.3f}  "
            f"{row.target:>9}  {'yes' if row.holds else 'NO'}"
        )
    if out is not None:
        facts = circumstances() | {"rows": [written(row) for row in rows], "beside": beside or []}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(facts, indent=1), encoding="utf-8")
    sys.exit(0 if all(row.holds for row in rows) else 1)


def written(row: Row) -> dict[str, object]:
    """Give a row as it is written: with what follows from it, and the version of the peer."""
    return asdict(row) | {
        "ratio": row.ratio,
        "holds": row.holds,
        "against": with_version(row.against),
    }


def with_version(package: str) -> str:
    """Name a package with the version that is installed."""
    try:
        return f"{package} {version(package)}" if package else ""
    except PackageNotFoundError:  # part of an installed one, or of the machine
        return package


def circumstances() -> dict[str, object]:
    """Say when, how and on what it was measured."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": command(sys.argv),
        "quick": "--quick" in sys.argv,
        "machine": processor(),
        "cores": os.cpu_count(),
        "load": LOAD,
        "python": platform.python_version(),
        "numpy": version("numpy"),
    }


def command(arguments: list[str]) -> str:
    """Give the command without the folders of this machine, and without where results go."""
    kept, given = [], iter(arguments[1:])
    for argument in given:
        name, _, value = argument.partition("=")
        if name == "--out":
            if not value:
                next(given, None)
        elif name == "--data":
            kept += ["--data", "DIR"]
            if not value:
                next(given, None)
        else:
            kept.append(argument)
    return " ".join([Path(arguments[0]).name, *kept])


def processor() -> str:
    """Name the kind of CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
