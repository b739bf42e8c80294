"""Public archives: download with checksum and resume, or import a local copy.

Nothing appears under an archive's own name before its checksum is verified; until then the bytes
are kept beside it, in `<file name>.part`, where the next run resumes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from coldhash.data.sources import KNOWN
from coldhash.errors import ChecksumError, SourceError
from coldhash.files import move_into_place, open_regular, replace_file, writing

_BLOCK_BYTES = 1 << 16
_TIMEOUT = 30.0  # seconds without a byte

Report = Callable[[int, int | None], object]


@dataclass(frozen=True)
class Archive:
    """A zip file on the web; `checksum` is "sha256:<hex>" or "md5:<hex>"."""

    name: str
    url: str
    checksum: str
    about: str  # the terms of use, in one line

    @property
    def file_name(self) -> str:
        """The name of the file on the server and on the disk."""
        return self.url.rsplit("/", 1)[-1]

    @property
    def import_hint(self) -> str:
        """How to use a copy that was downloaded by other means."""
        return f"import a copy with `coldhash fetch {self.name} --from FILE`"


ARCHIVES = {name: Archive(name, **s["archive"]) for name, s in KNOWN.items() if "archive" in s}


def fetch(archive: Archive, folder: Path, *, report: Report = lambda done, total: None) -> Path:
    """Download an archive into a folder, unless it is there already; returns its path.

    Parameters
    ----------
    archive : Archive
        What to download.
    folder : Path
        Where to put it; created if necessary.
    report : callable
        Called with the bytes so far and the total, if known.
    """
    target, part = folder / archive.file_name, folder / f"{archive.file_name}.part"
    if target.exists():
        again = f"remove it to download it again, or {archive.import_hint}"
        _verify(archive, target, str(target), again)
        return target
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if part.is_symlink():
            part.unlink()  # never followed: what it points to must not be overwritten
    _download(archive, part, report)
    try:
        hint = f"what came was removed: try again, or {archive.import_hint}"
        _verify(archive, part, f"{archive.file_name} from {archive.url}", hint)
    except ChecksumError:
        part.unlink()
        raise
    with writing(folder, _kept(part)):
        move_into_place(part, target)
    return target


def import_archive(archive: Archive, source: Path, folder: Path) -> Path:
    """Copy a local zip file to where `fetch` would put the archive; returns that path.

    A file that is there already is replaced.
    """
    target = folder / archive.file_name
    with open_regular(source, hint="name the zip file to import") as original:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with replace_file(target) as copy:
            shutil.copyfileobj(original, copy, _BLOCK_BYTES)
            copy.flush()
            hint = "`coldhash describe --dataset NAME --data FILE` reads another edition in place"
            _verify(archive, copy.name, str(source), hint)  # these are the bytes that stay
    return target


def _download(archive: Archive, part: Path, report: Report) -> None:
    """Request what the part lacks, and append it."""
    size = part.stat().st_size if part.exists() else 0
    request = Request(archive.url, headers={"Range": f"bytes={size}-"} if size else {})
    try:
        response: HTTPResponse = urlopen(request, timeout=_TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == 416:  # there is nothing more: the checksum decides
            return
        raise _failure(archive, f"HTTP {error.code} {error.reason}") from None
    except (HTTPException, OSError) as error:
        raise _failure(archive, f"{getattr(error, 'reason', error)}") from error
    with response:
        resumed = response.status == 206
        done = size if resumed else 0
        total = None if response.length is None else done + response.length
        mode = os.O_APPEND if resumed else os.O_TRUNC
        with writing(part.parent, _kept(part)):
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | mode, 0o666)
            with os.fdopen(handle, "wb") as file:
                report(done, total)
                for block in _blocks(archive, response):
                    file.write(block)
                    file.flush()  # so that a killed process loses nothing
                    done += len(block)
                    report(done, total)
    if total is not None and done < total:
        reason = f"the connection ended after {done:,} of {total:,} bytes, {_kept(part)}"
        raise _failure(archive, reason)


def _blocks(archive: Archive, response: HTTPResponse) -> Iterator[bytes]:
    try:
        while block := response.read1(_BLOCK_BYTES):  # read() loses what came before a cut
            yield block
    except (HTTPException, OSError) as error:
        raise _failure(archive, f"the connection broke ({error})") from error


def _failure(archive: Archive, reason: str) -> SourceError:
    hint = f"try again, which resumes where it stopped, or {archive.import_hint}"
    return SourceError(f"{archive.url}: {reason}", hint=hint)


def _verify(archive: Archive, path: str | Path, name: str, hint: str) -> None:
    """Raise an error unless a file has the archive's checksum."""
    kind = archive.checksum.partition(":")[0]
    with open_regular(path, hint="remove it") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False))
    found = f"{kind}:{digest.hexdigest()}"
    if found != archive.checksum:
        raise ChecksumError(f"{name}: expected {archive.checksum}, got {found}", hint=hint)


def _kept(part: Path) -> str:
    return f"what came so far is kept in {part.name} for the next try"
