"""Public archives: download with checksum and resume, or import a local copy.

Nothing appears under an archive's own name before its checksum has been seen to be right; until
then the bytes live beside it, in `<file name>.part`, where the next run picks them up.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from io import BufferedRandom, BufferedReader, FileIO
from pathlib import Path
from ssl import SSLCertVerificationError
from urllib import request
from urllib.error import HTTPError, URLError

from coldhash.errors import ChecksumError, SettingError, SourceError
from coldhash.files import move_into_place, open_regular, replace_file, writing

Progress = Callable[[int, int | None], None]

BLOCK = 1 << 16
LONGEST_PAUSE = 30.0
PASSING = {408, 429, 500, 502, 503, 504}  # HTTP statuses that may be gone a moment later


@dataclass(frozen=True)
class Archive:
    """A zip file somewhere on the web; `checksum` is "sha256:<hex>" or "md5:<hex>"."""

    name: str
    file_name: str
    url: str
    checksum: str
    about: str  # the terms of use, in one line

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise SettingError(f"{self.name}: cannot fetch {self.url!r}", hint="use http or https")
        if not re.fullmatch(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", self.checksum):
            raise SettingError(
                f"{self.name}: {self.checksum!r} is not a checksum",
                hint='write "sha256:" or "md5:" and the lower-case hex digits',
            )


_GROUPLENS = "https://files.grouplens.org/datasets/movielens"
_MOVIELENS_TERMS = "MovieLens: for research use, no redistribution without permission"

ARCHIVES: dict[str, Archive] = {
    "ml-1m": Archive(
        "ml-1m",
        "ml-1m.zip",
        f"{_GROUPLENS}/ml-1m.zip",
        "sha256:a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
        _MOVIELENS_TERMS,
    ),
    "ml-100k": Archive(
        "ml-100k",
        "ml-100k.zip",
        f"{_GROUPLENS}/ml-100k.zip",
        "sha256:50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
        _MOVIELENS_TERMS,
    ),
    "book-crossing": Archive(
        "book-crossing",
        "BX-CSV-Dump.zip",
        "http://www2.informatik.uni-freiburg.de/~cziegler/BX/BX-CSV-Dump.zip",
        "md5:37d647ee9e18ba134ea6d78ee4fe5292",
        "Book-Crossing: free for research that cites Ziegler et al. 2005",
    ),
}


def fetch(
    archive: Archive,
    folder: Path,
    *,
    progress: Progress | None = None,
    attempts: int = 5,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> Path:
    """Download an archive into a folder, unless it is there already; give its path.

    `progress` is told the bytes so far and the total, if known; the bytes fall back only when the
    server makes the download start over. `attempts` limits the tries in a row without progress,
    `timeout` the seconds of silence in one of them; `pause` doubles from one to the next.
    """
    if attempts < 1 or timeout <= 0 or pause < 0:
        raise SettingError(
            f"cannot fetch with attempts={attempts}, timeout={timeout}, pause={pause}",
            hint="at least one attempt, a timeout above 0, a pause of 0 or more",
        )
    target, part = folder / archive.file_name, folder / f"{archive.file_name}.part"
    if target.exists():
        hint = f"remove it to download it again, or {_import_hint(archive)}"
        _verify(archive, _checksum(target, archive), f"{target}", hint)
        return target
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if part.is_symlink():
            part.unlink()  # never followed: what it points to is not ours to write
    # A run that was killed at the last moment leaves a part that is already complete.
    if not part.exists() or _checksum(part, archive) != archive.checksum:
        _download(archive, part, progress, attempts=attempts, timeout=timeout, pause=pause)
        try:
            hint = f"what came was removed: try again, or {_import_hint(archive)}"
            came = f"{archive.file_name} from {archive.url}"
            _verify(archive, _checksum(part, archive), came, hint)
        except ChecksumError:
            part.unlink()
            raise
    with writing(folder, _kept(part)):
        move_into_place(part, target)
    return target


def import_archive(archive: Archive, source: Path, folder: Path, *, check: bool = True) -> Path:
    """Copy a local zip file to where `fetch` would put the archive; give that path.

    A file that is there already is replaced; without `check` another edition of the data passes.
    """
    target = folder / archive.file_name
    with _open_zip(source) as original:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with replace_file(target) as copy:
            shutil.copyfileobj(original, copy, BLOCK)
            if check:  # the copy and not the source: these are the bytes that stay
                copy.seek(0)
                hint = "`check=False` (`--unchecked`) accepts another edition of the data"
                _verify(archive, _digest(copy, archive), f"{source}", hint)
    return target


def _import_hint(archive: Archive) -> str:
    return f"import a copy with `coldhash fetch {archive.name} --from FILE`"


# --- The network ---------------------------------------------------------------------------------


class _Cut(Exception):
    """The transfer stopped early; asking again may bring the rest."""


class _Refused(Exception):
    """The server does not continue from where we are; starting over may help."""


def _download(
    archive: Archive,
    part: Path,
    progress: Progress | None,
    *,
    attempts: int,
    timeout: float,
    pause: float,
) -> None:
    """Fill the part, going on from where it stands, as long as that brings something new."""
    best, idle, started_over = _size(part), 0, False
    while True:
        try:
            return _receive(archive, part, progress, timeout)
        except _Refused as refusal:
            if started_over:
                raise _failure(archive, f"{refusal}") from None
            started_over, best = True, 0
            part.unlink(missing_ok=True)
        except _Cut as cut:
            # Against the best so far: a server that ignores Range gets nowhere by starting over.
            size = _size(part)
            idle = 0 if size > best else idle + 1
            best = max(best, size)
            if idle == attempts:
                reason = f"{cut}; gave up after {idle} tries without progress, {_kept(part)}"
                raise _failure(archive, reason) from cut
            time.sleep(_wait(pause, idle))


def _wait(pause: float, idle: int) -> float:
    return min(LONGEST_PAUSE, pause * 2.0 ** min(idle, 16))


def _receive(archive: Archive, part: Path, progress: Progress | None, timeout: float) -> None:
    """Ask for what the part lacks, and append it."""
    size = _size(part)
    with _ask(archive, size, timeout) as response:
        at, total = _extent(response, size)
        with writing(part.parent, _kept(part)):
            mode = os.O_APPEND if at else os.O_TRUNC
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | mode, 0o666)
        with FileIO(handle, "w") as file:
            if progress:
                progress(at, total)
            for block in _blocks(response):
                with writing(part.parent, _kept(part)):
                    _append(file, block)
                at += len(block)
                if total is not None and at > total:
                    return  # more than was promised: leave the verdict to the checksum
                if progress:
                    progress(at, total)
    if total is not None and at < total:
        raise _Cut(f"the connection ended after {at:,} of {total:,} bytes")


def _ask(archive: Archive, start: int, timeout: float) -> HTTPResponse:
    headers = {"Range": f"bytes={start}-"} if start else {}
    try:
        response: HTTPResponse = _opener().open(
            request.Request(archive.url, headers=headers), timeout=timeout
        )
    except HTTPError as error:
        error.close()
        status = f"HTTP {error.code} {error.reason}"
        if error.code == 416:
            raise _Refused(status) from None
        if error.code in PASSING:
            raise _Cut(status) from None
        raise _failure(archive, status) from None
    except URLError as error:
        # A failed socket may work the next time; a bad certificate or a redirect to ftp will not.
        if isinstance(error.reason, SSLCertVerificationError | str):
            raise _failure(archive, f"{error.reason}") from error
        raise _Cut(f"{error.reason}") from error
    except (HTTPException, OSError) as error:
        raise _Cut(f"{error}") from error
    return response


def _opener() -> request.OpenerDirector:
    """Speak http and https only: urllib's own opener follows redirects to ftp."""
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler,
        request.HTTPHandler,
        request.HTTPSHandler,
        request.HTTPRedirectHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPErrorProcessor,
        request.UnknownHandler,
    ):
        opener.add_handler(handler())
    return opener


def _extent(response: HTTPResponse, asked: int) -> tuple[int, int | None]:
    """Say where in the archive the body starts, and how long the archive is if that is told."""
    if response.status == 200:
        return 0, response.length
    told = response.headers.get("Content-Range", "")
    extent = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", told)
    if response.status != 206 or extent is None or int(extent[1]) != asked:
        raise _Refused(f"HTTP {response.status}, Content-Range {told!r} for bytes from {asked}")
    if extent[2] != "*":
        return asked, int(extent[2])
    return asked, None if response.length is None else asked + response.length


def _blocks(response: HTTPResponse) -> Iterator[bytes]:
    try:
        while block := response.read1(BLOCK):  # not read(): it loses what came just before a cut
            yield block
    except (HTTPException, OSError) as error:
        raise _Cut(f"the connection broke ({error})") from error


def _failure(archive: Archive, reason: str) -> SourceError:
    return SourceError(
        f"{archive.url}: {reason}", hint=f"try again later, or {_import_hint(archive)}"
    )


# --- The disk ------------------------------------------------------------------------------------


def _checksum(path: Path, archive: Archive) -> str:
    with open_regular(path, hint="remove it") as file:
        return _digest(file, archive)


def _digest(file: BufferedReader | BufferedRandom, archive: Archive) -> str:
    """Hash a file the way the archive's checksum was made."""
    kind = archive.checksum.partition(":")[0]
    digest = hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False))
    return f"{kind}:{digest.hexdigest()}"


def _verify(archive: Archive, got: str, called: str, hint: str) -> None:
    if got != archive.checksum:
        raise ChecksumError(f"{called}: expected {archive.checksum}, got {got}", hint=hint)


def _open_zip(source: Path) -> BufferedReader:
    file = open_regular(source, hint="name the zip file to import")
    if not zipfile.is_zipfile(file):
        file.close()
        raise SourceError(f"{source} is not a zip file", hint="import the archive as it was served")
    file.seek(0)
    return file


def _append(file: FileIO, block: bytes) -> None:
    left = memoryview(block)
    while left:  # unbuffered, so that a full disk is met here and not in close()
        left = left[file.write(left) :]


def _kept(part: Path) -> str:
    return f"what came so far is kept in {part.name} for the next try"


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
