"""The command line: parse, call, print. Data goes to stdout, messages and progress to stderr.

Exit code 2 is a mistake of the user, 1 one of ours. Heavy imports are made inside the commands, so
that `--help` is quick.
"""

from __future__ import annotations

import errno
import io
import sys
import warnings
from typing import Any

from typer.main import get_command

from coldhash.cli import data, models, serve  # noqa: F401  # they register commands
from coldhash.cli.inputs import app
from coldhash.cli.output import printable, translate_hint
from coldhash.errors import CodeCollapse, ColdhashError, UnknownColumns, UnlikelyData
from coldhash.files import DISK_HINT, reason_of

__all__ = ["app", "main"]

_REFUSED_WRITES = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM,
}  # fmt: skip


def main() -> None:
    """Run the command line; report a mistake of the user in one line, without a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # JSON, file names
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app()
        return
    except ColdhashError as error:
        message = translate_hint(str(error), _options())
    except MemoryError:
        message = "out of memory; hint: fewer users or columns, or fit from disk (coldhash prepare)"
    except OSError as error:
        if error.errno not in _REFUSED_WRITES:
            raise
        place = f" {error.filename}" if error.filename else ""
        message = f"cannot write{place}: {reason_of(error)}; hint: {DISK_HINT}"
    print(f"error: {printable(message)}", file=sys.stderr)
    sys.exit(2)


def _show_warning(
    message: Warning | str, category: type[Warning], *place: Any, **_: object
) -> None:
    """Print a warning about the data in one line, and any other one as usual."""
    if issubclass(category, CodeCollapse | UnlikelyData | UnknownColumns):
        text = translate_hint(str(message), _options())
        print(f"warning: {printable(text)}", file=sys.stderr)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, *place[:2]))


def _options() -> set[str]:
    """Return the options of the command that was called."""
    commands: dict[str, Any] = getattr(get_command(app), "commands", {})
    called = [commands[name] for name in sys.argv[1:2] if name in commands]
    options = [option for each in called for option in each.params]
    return {name for option in options for name in option.opts + option.secondary_opts}
