"""Make the modules of `tests/` importable: what benchmarks share with tests lives there."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
