"""The command line, in a process of its own."""

from __future__ import annotations

import subprocess
import sys


def coldhash_command(*arguments, cwd=None):
    """Run a command to its end; gives its status and what it said."""
    return subprocess.run(
        [sys.executable, "-m", "coldhash", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        cwd=cwd,
        timeout=600,
    )
