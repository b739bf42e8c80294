"""Write files in one step, lock them, and report a disk that cannot be written to.

A file is written in a draft folder beside its place, `.name.xxxxxxxx.part`, flushed to the disk and
then renamed: a crash leaves the old file or the new one. A killed process leaves its draft behind;
the next write of the same file removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRandom, BufferedReader, FileIO
from pathlib import Path
from typing import TypeAlias

from coldhash.errors import ColdhashError, SettingError, SourceError

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

ABANDONED = 3600  # seconds without a change after which an unlocked draft is removed
DISK_HINT = "make room, or name another folder"


@contextmanager
def replace_file(path: str | Path) -> Iterator[BufferedRandom]:
    """Open a draft for writing; it replaces the file at `path` if the block ends without error."""
    path = Path(path)
    with draft_folder(path) as draft:
        with (draft / "new").open("x+b") as file:
            yield file
        move_into_place(draft / "new", path)


def replace_text(path: str | Path, text: str) -> None:
    """Write a text file in UTF-8, in one step."""
    with replace_file(path) as file:
        file.write(text.encode())


@contextmanager
def draft_folder(path: Path) -> Iterator[Path]:
    """Create a folder beside `path` for files that are moved to their places later."""
    with writing(path, "what was there is untouched"):
        draft, handle = _begin_draft(path)
        try:
            yield draft
        finally:
            os.close(handle)
            shutil.rmtree(draft, ignore_errors=True)


def _begin_draft(path: Path) -> tuple[Path, int]:
    """Create a draft and lock it, so that no other process takes it for an abandoned one."""
    try:
        _remove_abandoned(path)
        while True:
            draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
            draft.mkdir()
            try:
                handle = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW)
            except FileNotFoundError:  # removed already, by a process whose clock is ahead
                continue
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
            if draft.exists():
                return draft, handle
            os.close(handle)  # removed before it was locked
    except ValueError as error:  # no file name, or a null byte in it
        raise OSError(str(error)) from None


def _remove_abandoned(path: Path) -> None:
    """Remove old drafts that no process holds; clocks differ, so age alone does not decide."""
    for draft in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}.part"):
        with contextlib.suppress(OSError):
            if draft.lstat().st_mtime >= time.time() - ABANDONED:
                continue
            handle = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                shutil.rmtree(draft)
            finally:
                os.close(handle)


def move_into_place(draft: Path, path: Path) -> None:
    """Flush a draft to the disk, rename it to `path`, and flush the new name as well."""
    _flush(draft)
    os.replace(draft, path)
    with contextlib.suppress(OSError):  # a file system that cannot flush folders
        _flush(path.parent)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_regular(path: str | Path, hint: str | None = None) -> BufferedReader:
    """Open a regular file for reading; a pipe, device or folder is an error, not a wait."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return os.fdopen(handle, "rb")
        os.close(handle)
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else error
        raise SourceError(f"cannot read {path}: {reason}", hint=hint) from None
    raise SourceError(f"cannot read {path}: not a regular file", hint=hint or "name a file")


def lock_file(path: Path, busy: str = "") -> FileIO:
    """Open a file for appending and lock it until it is closed.

    If another process holds it, `busy` is the message of the error; without one, wait for it.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            file.close()
            raise SettingError(busy, hint="wait for it, or name another folder") from None
    return file


@contextmanager
def writing(path: str | Path, left: str | None = None) -> Iterator[None]:
    """Turn an OSError into a SourceError; `left` describes what a failed write leaves."""
    try:
        yield
    except ColdhashError:
        raise
    except OSError as error:
        kept = f"; {left}" if left else ""
        message = f"cannot write {path}: {reason_of(error)}{kept}"
        raise SourceError(message, hint=DISK_HINT) from error


def reason_of(error: OSError) -> str:
    """Return why something could not be read or written, as the system puts it."""
    if error.errno and error.errno > 0:  # that of a name that cannot be resolved is below
        return os.strerror(error.errno)
    return error.strerror or str(error)
