"""The command line: parse, call, print. Data goes to stdout, talk to stderr.

Exit code 2 for a mistake of the user's, 1 for one of ours. Imports of weight are made inside the
commands, so that `--help` is quick.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import sys

from coldhash.cli import data, demo, evaluate, recommend, scale, serve, tune, update
from coldhash.cli.app import app, printable
from coldhash.errors import ColdhashError
from coldhash.files import DISK_HINT, reason_of

__all__ = [
    "app",
    "data",
    "demo",
    "evaluate",
    "main",
    "recommend",
    "scale",
    "serve",
    "tune",
    "update",
]


# what a machine refuses whatever we do
REFUSALS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}


def main() -> None:
    """Run the command line; a mistake of the user's is told in one line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("coldhash", _escape)
        sys.stdout.reconfigure(errors="coldhash")
    try:
        app()
    except ColdhashError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        sys.exit(2)
    except MemoryError:
        hint = "fewer users or columns; mfdcf fits from disk (coldhash prepare)"
        print(f"error: out of memory; hint: {hint}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        place = f" {printable(str(error.filename))}" if error.filename else ""
        print(f"error: cannot write{place}: {reason_of(error)}; hint: {DISK_HINT}", file=sys.stderr)
        sys.exit(2)


def _escape(error: UnicodeError) -> tuple[str | bytes, int]:
    """Encode what stdout cannot: bytes of file names as they came, the rest escaped as in JSON."""
    assert isinstance(error, UnicodeEncodeError)
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeEncodeError:
        return json.dumps(error.object[error.start : error.end])[1:-1], error.end
