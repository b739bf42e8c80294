"""The code paths of other processors, in environment variables; as a script, the tests on each.

    python tests/processors.py -m "not slow"

runs pytest with these arguments once for each path, and once in another locale and time zone.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np

ELSEWHERE = {"PYTHONUTF8": "0", "LC_ALL": "POSIX", "TZ": "Asia/Kolkata"}


def code_paths() -> dict[str, dict[str, str]]:
    """Return the variables that choose each path which this processor can run."""
    found = np.show_config("dicts")["SIMD Extensions"].get("found", [])
    paths = {"no numpy dispatch": {"NPY_DISABLE_CPU_FEATURES": ",".join(found)}} if found else {}
    if platform.machine() in ("x86_64", "AMD64"):
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
        paths["oldest"] = {"OPENBLAS_CORETYPE": "Prescott", "NUMBA_CPU_NAME": "generic"}
        if "avx2" in flags:
            paths["AVX2"] = {"OPENBLAS_CORETYPE": "Haswell"}
        if "avx512f" in flags:
            paths["AVX-512"] = {"OPENBLAS_CORETYPE": "SkylakeX"}
    return paths


def main() -> int:
    """Run pytest on every path; return 1 if one of the runs failed."""
    failed = []
    for name, variables in (code_paths() | {"elsewhere": ELSEWHERE}).items():
        print(f"== {name}:", *(f"{key}={value}" for key, value in variables.items()), flush=True)
        command = [sys.executable, "-m", "pytest", *sys.argv[1:]]
        if subprocess.run(command, env=os.environ | variables).returncode:
            failed.append(name)
    print("failed:", ", ".join(failed) or "none")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
