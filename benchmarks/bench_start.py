"""The start of the command line beside an import, and the compilation of the first run.

Processor time, which the load of the machine changes least.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from statistics import median

from table import Row, finish, options, run_python

from coldhash import MFDCF, read

PERSON = '{"age": 25}'


def command(*arguments: object, repeats: int) -> float:
    """Return the median of the processor seconds of a command."""
    return median(run_python(*arguments).processor_seconds for _ in range(repeats))


def main() -> None:
    args = options(__doc__ or "")
    repeats = 5 if args.quick else 15
    data = read("sample") if args.data is None else read("ml-1m", args.data)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.coldhash"
        MFDCF().fit(data).save(file)
        imports = command("-c", "import numpy, pyarrow", repeats=repeats)
        ask = ("-m", "coldhash", "recommend", file, "--user", PERSON)
        asked = command(*ask, repeats=repeats)
        helped = command("-m", "coldhash", "--help", repeats=repeats)
        demo = ("-m", "coldhash", "demo", "--no-serve", "--out", Path(folder) / "demo")
        os.environ["NUMBA_CACHE_DIR"] = str(Path(folder) / "cache")
        first, again = (command(*demo, repeats=1) for _ in range(2))
    finish(
        [
            Row("coldhash recommend / import numpy, pyarrow", asked, imports, "<= 3"),
            Row("coldhash --help / import numpy, pyarrow", helped, imports, "<= 1"),
            Row("compilation of the first coldhash demo, seconds / 8", first - again, 8, "<= 1"),
        ],
        args.out,
    )


if __name__ == "__main__":
    main()
