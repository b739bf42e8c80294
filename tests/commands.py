"""Run the command line, in a process of its own or, which is quicker, in this one."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from unittest import mock

from coldhash.cli import main


def coldhash_command(*arguments, cwd=None):
    """Run a command in a process of its own; return its exit code and output."""
    return subprocess.run(
        [sys.executable, "-m", "coldhash", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        cwd=cwd,
        timeout=600,
    )


def coldhash_in_process(*arguments, cwd=".", encoding="utf-8"):
    """Run a command in this process; return the same as `coldhash_command`."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding, newline=""), io.StringIO()
    code = 0
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", ["coldhash", *map(str, arguments)]),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    out.flush()
    printed = out.buffer.getvalue().decode("utf-8", "surrogateescape")
    return subprocess.CompletedProcess(sys.argv, code, printed, err.getvalue())
