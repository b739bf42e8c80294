"""Fuzz targets with atheris: `python tests/fuzz/run.py --seconds 60 [TARGET ...]`.

What was found interesting is kept in `.fuzz/corpus` and goes on from there next time; an input that
breaks a target is written to `.fuzz/crashes`, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

NAMES = ("tables", "plans", "models", "commands", "bodies")
KEPT = Path(__file__).parents[2] / ".fuzz"
SOURCE = Path(__file__).parents[2] / "src"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*", help=", ".join(NAMES))
    args = parser.parse_args()
    names = args.targets or NAMES
    if args.child:
        fuzz(names[0], args.seconds)
    failed = []
    for name in names:
        print(f"== {name}, {args.seconds} s", flush=True)
        command = [sys.executable, __file__, "--child", "--seconds", str(args.seconds), name]
        with tempfile.TemporaryDirectory() as folder:  # the fuzzer ends without cleaning up
            if subprocess.run(command, env=os.environ | {"TMPDIR": folder}).returncode:
                failed.append(name)
    if failed:
        print(f"broken: {', '.join(failed)}; the inputs are in {KEPT / 'crashes'}")
    return bool(failed)


def compiled() -> list[str]:
    """Modules that numba compiles from their byte code, which must therefore stay as it is."""
    return [
        ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for path in SOURCE.rglob("*.py")
        if "njit" in path.read_text(encoding="utf-8") or "numba" in path.read_text(encoding="utf-8")
    ]


def fuzz(name: str, seconds: int) -> None:
    """Fuzz one target; this never returns."""
    import atheris

    with atheris.instrument_imports(include=["coldhash", "tomllib"], exclude=compiled()):
        from targets import LEAST, TARGETS

    target = TARGETS[name]
    corpus, crashes = KEPT / "corpus" / name, KEPT / "crashes"
    for place in (corpus, crashes):
        place.mkdir(parents=True, exist_ok=True)
    seeds = target.seeds()
    for n, seed in enumerate(seeds):
        (corpus / f"seed-{n}").write_bytes(seed)
        target.run(seed)  # compiles, and shows that the target works at all
    warnings.simplefilter("error")  # as in the tests

    def run(data: bytes) -> None:
        if len(data) >= LEAST:
            target.run(data)

    options = {
        "max_total_time": seconds,
        "max_len": max(4096, 2 * max(map(len, seeds))),
        "timeout": 30,
        "rss_limit_mb": 4096,
        "print_final_stats": 1,
        "verbosity": 0,
        "artifact_prefix": f"{crashes}/{name}-",
    }
    arguments = [f"-{option}={value}" for option, value in options.items()]
    atheris.Setup([sys.argv[0], *arguments, str(corpus)], run)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
