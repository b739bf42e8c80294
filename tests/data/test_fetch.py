"""The downloads run against a real server on the loopback that misbehaves on request."""

import hashlib
import io
import random
import re
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from coldhash.data.fetch import ARCHIVES, Archive, fetch, import_archive
from coldhash.errors import ChecksumError, SourceError


def zipped(seed: int, size: int = 300_000) -> bytes:
    """A zip file of incompressible bytes: larger than one block and than a socket's first gulp."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zip_file:
        zip_file.writestr("ratings.dat", random.Random(seed).randbytes(size))
    return file.getvalue()


BODY = zipped(0)
CUT = 100_001  # in the middle of a block


class Handler(BaseHTTPRequestHandler):
    server: "Site"
    protocol_version = "HTTP/1.1"  # urllib asks for `Connection: close`, so one request each

    def do_GET(self) -> None:
        self.server.ranges.append(self.headers["Range"])
        answer = self.server.answers.pop(0) if self.server.answers else serve
        answer(self)

    def log_message(self, *args: object) -> None:
        pass

    @property
    def start(self) -> int:
        """Where the client wants to begin."""
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "bytes=0-")
        assert asked is not None
        return int(asked[1])

    def open(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def open_rest(self) -> bytes:
        """Promise all that the client lacks, and give it to the caller to send."""
        rest = BODY[self.start :]
        if self.start:
            extent = f"bytes {self.start}-{len(BODY) - 1}/{len(BODY)}"
            self.open(206, Content_Length=len(rest), Content_Range=extent)
        else:
            self.open(200, Content_Length=len(rest))
        return rest


Answer = Callable[[Handler], None]


class Site(HTTPServer):
    """Gives one answer after the other, then serves well; notes the Range of each request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = []
        self.ranges: list[str | None] = []

    def handle_error(self, *args: object) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # clients here do hang up
            super().handle_error(*args)  # type: ignore[arg-type]

    @property
    def archive(self) -> Archive:
        url = f"http://127.0.0.1:{self.server_port}/tiny.zip"
        checksum = f"sha256:{hashlib.sha256(BODY).hexdigest()}"
        return Archive("tiny", url, checksum, "made up")


def serve(handler: Handler) -> None:
    handler.wfile.write(handler.open_rest())


def ignore_range(handler: Handler) -> None:
    handler.open(200, Content_Length=len(BODY))
    handler.wfile.write(BODY)


def cut(handler: Handler) -> None:
    handler.wfile.write(handler.open_rest()[:CUT])


def stall(handler: Handler) -> None:
    handler.wfile.write(handler.open_rest()[:CUT])
    handler.rfile.read(1)  # until the client gives up


def cut_chunk(handler: Handler) -> None:
    handler.open(200, Transfer_Encoding="chunked")
    handler.wfile.write(b"%x\r\n" % len(BODY) + BODY[:CUT])


def wrong_bytes(handler: Handler) -> None:
    rest = handler.open_rest()
    handler.wfile.write(bytes([rest[0] ^ 1]) + rest[1:])


def promise_less(handler: Handler) -> None:
    handler.open(200, Content_Length=len(BODY) - 10)
    handler.wfile.write(BODY)


def trail(handler: Handler) -> None:
    handler.wfile.write(handler.open_rest() + b"what no client should read")


def wrong_start(handler: Handler) -> None:
    handler.open(206, Content_Length=len(BODY), Content_Range=f"bytes 0-9/{len(BODY)}")
    handler.wfile.write(BODY)


def unsized(handler: Handler) -> None:
    handler.open(200, Connection="close")
    handler.wfile.write(BODY)


def status(code: int) -> Answer:
    return lambda handler: handler.open(code, Content_Length=0)


def redirect(place: str) -> Answer:
    return lambda handler: handler.open(302, Content_Length=0, Location=place)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Site() as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.01,))
        thread.start()
        yield site
        site.shutdown()
        thread.join()


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / "tiny.zip.part"


def assert_fetched(path: Path, folder: Path) -> None:
    """The archive is there, whole, and nothing else is."""
    assert path == folder / "tiny.zip"
    assert path.read_bytes() == BODY
    assert list(folder.iterdir()) == [path]


# --- What goes well ------------------------------------------------------------------------------


def test_a_download_makes_its_folder_and_leaves_only_the_archive(
    site: Site, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "folder"
    assert_fetched(fetch(site.archive, folder), folder)
    assert site.ranges == [None]


def test_a_good_file_costs_no_request(site: Site, tmp_path: Path) -> None:
    (tmp_path / "tiny.zip").write_bytes(BODY)
    assert_fetched(fetch(site.archive, tmp_path), tmp_path)
    assert site.ranges == []


def test_an_md5_will_do(site: Site, tmp_path: Path) -> None:
    archive = replace(site.archive, checksum=f"md5:{hashlib.md5(BODY).hexdigest()}")
    assert_fetched(fetch(archive, tmp_path), tmp_path)


def test_a_size_may_be_unknown(site: Site, tmp_path: Path) -> None:
    site.answers = [unsized]
    told: list[tuple[int, int | None]] = []
    path = fetch(site.archive, tmp_path, report=lambda *at: told.append(at))
    assert_fetched(path, tmp_path)
    assert told[-1] == (len(BODY), None)


def test_a_redirect_is_followed(site: Site, tmp_path: Path) -> None:
    site.answers = [redirect("/elsewhere.zip")]
    assert_fetched(fetch(site.archive, tmp_path), tmp_path)


def test_progress_rises_to_the_total_through_a_cut(site: Site, tmp_path: Path) -> None:
    site.answers = [cut]
    told: list[tuple[int, int | None]] = []
    with pytest.raises(SourceError):
        fetch(site.archive, tmp_path, report=lambda *at: told.append(at))
    fetch(site.archive, tmp_path, report=lambda *at: told.append(at))
    counts = [count for count, _ in told]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert CUT in counts
    assert counts[-1] == len(BODY)
    assert {total for _, total in told} == {len(BODY)}


# --- What is resumed -----------------------------------------------------------------------------


def test_a_part_is_resumed(site: Site, tmp_path: Path, part: Path) -> None:
    part.write_bytes(BODY[:CUT])
    counts: list[int] = []
    path = fetch(site.archive, tmp_path, report=lambda count, _: counts.append(count))
    assert_fetched(path, tmp_path)
    assert site.ranges == [f"bytes={CUT}-"]
    assert counts[0] == CUT


def test_a_complete_part_is_not_downloaded_again(site: Site, tmp_path: Path, part: Path) -> None:
    part.write_bytes(BODY)
    site.answers = [status(416)]
    assert_fetched(fetch(site.archive, tmp_path), tmp_path)
    assert site.ranges == [f"bytes={len(BODY)}-"]


def test_a_server_without_ranges_makes_it_start_over(
    site: Site, tmp_path: Path, part: Path
) -> None:
    part.write_bytes(BODY[:CUT])
    site.answers = [ignore_range]
    assert_fetched(fetch(site.archive, tmp_path), tmp_path)
    assert site.ranges == [f"bytes={CUT}-"]


def test_a_server_that_continues_elsewhere_makes_it_start_over(
    site: Site, tmp_path: Path, part: Path
) -> None:
    part.write_bytes(BODY[:CUT])
    site.answers = [wrong_start]
    with pytest.raises(ChecksumError):
        fetch(site.archive, tmp_path)
    assert_fetched(fetch(site.archive, tmp_path), tmp_path)
    assert site.ranges == [f"bytes={CUT}-", None]


def test_a_part_that_is_too_long_is_removed(site: Site, tmp_path: Path, part: Path) -> None:
    part.write_bytes(BODY + b"x")
    site.answers = [status(416)]
    with pytest.raises(ChecksumError, match="expected"):
        fetch(site.archive, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("short", [cut, cut_chunk, stall])
def test_a_short_body_is_resumed_where_it_stopped(
    site: Site, tmp_path: Path, part: Path, monkeypatch: pytest.MonkeyPatch, short: Answer
) -> None:
    monkeypatch.setattr("coldhash.data.fetch._TIMEOUT", 0.5)
    site.answers = [short]
    with pytest.raises(SourceError, match="the connection") as caught:
        fetch(site.archive, tmp_path)
    assert site.archive.url in str(caught.value)
    assert list(tmp_path.iterdir()) == [part]
    assert_fetched(fetch(site.archive, tmp_path), tmp_path)
    assert site.ranges == [None, f"bytes={CUT}-"]


# --- What is given up ----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [403, 404, 410, 500, 503])
def test_a_refusal_names_the_status(site: Site, tmp_path: Path, code: int) -> None:
    site.answers = [status(code)]
    with pytest.raises(SourceError, match=f"HTTP {code}") as caught:
        fetch(site.archive, tmp_path)
    assert caught.value.message.startswith(site.archive.url)
    assert "coldhash fetch tiny --from" in str(caught.value.hint)
    assert site.ranges == [None]
    assert list(tmp_path.iterdir()) == []


def test_a_dead_host_is_named_with_the_way_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as taken:  # bound but not listening: a port that refuses for sure
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/BX-CSV-Dump.zip"
        archive = replace(ARCHIVES["book-crossing"], url=url)
        with pytest.raises(SourceError, match="refused") as caught:
            fetch(archive, tmp_path)
    assert url in caught.value.message
    assert "coldhash fetch book-crossing --from" in str(caught.value.hint)


# --- What is not what was promised ---------------------------------------------------------------


def test_wrong_bytes_are_named_and_removed(site: Site, tmp_path: Path) -> None:
    wrong = f"sha256:{hashlib.sha256(bytes([BODY[0] ^ 1]) + BODY[1:]).hexdigest()}"
    site.answers = [wrong_bytes]
    with pytest.raises(ChecksumError) as caught:
        fetch(site.archive, tmp_path)
    assert "tiny.zip" in caught.value.message
    assert f"expected {site.archive.checksum}, got {wrong}" in caught.value.message
    assert list(tmp_path.iterdir()) == []
    assert_fetched(fetch(site.archive, tmp_path), tmp_path)
    assert site.ranges == [None, None]


def test_a_part_of_something_else_is_found_out(site: Site, tmp_path: Path, part: Path) -> None:
    part.write_bytes(b"x" * CUT)
    with pytest.raises(ChecksumError):
        fetch(site.archive, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_body_that_was_promised_too_short_is_refused(site: Site, tmp_path: Path) -> None:
    site.answers = [promise_less]
    with pytest.raises(ChecksumError, match=r"tiny\.zip.*expected.*got"):
        fetch(site.archive, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_bytes_after_the_promised_end_are_never_read(site: Site, tmp_path: Path) -> None:
    site.answers = [trail]
    assert_fetched(fetch(site.archive, tmp_path), tmp_path)


def test_another_file_is_reported_and_left_alone(site: Site, tmp_path: Path) -> None:
    (tmp_path / "tiny.zip").write_bytes(b"precious")
    with pytest.raises(ChecksumError, match=re.escape(str(tmp_path / "tiny.zip"))) as caught:
        fetch(site.archive, tmp_path)
    assert re.search("remove it .*import", str(caught.value.hint))
    assert (tmp_path / "tiny.zip").read_bytes() == b"precious"
    assert site.ranges == []


# --- The disk, and the end of the process --------------------------------------------------------

UNLIMITED = -1
SCRIPT = """
import resource, signal, sys
from pathlib import Path
from coldhash.data import fetch
from coldhash.errors import SourceError

call, limit, *fields = sys.argv[1:7]
paths = map(Path, sys.argv[7:])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that the write fails instead of the process
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    getattr(fetch, call)(fetch.Archive(*fields), *paths)
except SourceError as error:
    print(type(error).__name__, error)
"""


def child(call: str, archive: Archive, *paths: Path, limit: int) -> subprocess.Popen[str]:
    """Call a function of the module in another process, whose files may not outgrow a limit."""
    fields = [archive.name, archive.url, archive.checksum, archive.about]
    command = [sys.executable, "-c", SCRIPT, call, str(limit), *fields, *map(str, paths)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")


@pytest.mark.parametrize("room", [CUT, len(BODY) - 1])  # the last write may be the short one
def test_a_full_disk_keeps_the_part(site: Site, tmp_path: Path, part: Path, room: int) -> None:
    with child("fetch", site.archive, tmp_path, limit=room) as limited:
        said, _ = limited.communicate(timeout=60)
    assert said.startswith(f"SourceError cannot write {tmp_path}: File too large; ")
    assert "kept in tiny.zip.part" in said
    assert list(tmp_path.iterdir()) == [part]
    assert part.read_bytes() == BODY[:room]
    assert_fetched(fetch(site.archive, tmp_path), tmp_path)
    assert site.ranges == [None, f"bytes={room}-"]


@pytest.mark.parametrize("n_wrong", [0, 1])
def test_a_link_in_the_place_of_the_part_is_not_followed(
    site: Site, tmp_path: Path, n_wrong: int
) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "data"
    victim.write_bytes(b"precious")
    folder.mkdir()
    for name in ("tiny.zip.part", "tiny.zip.import"):
        (folder / name).symlink_to(victim)
    archive = replace(site.archive, checksum=f"md5:{'0' * 32}") if n_wrong else site.archive
    if n_wrong:
        with pytest.raises(ChecksumError):
            fetch(archive, folder)
    else:
        assert fetch(archive, folder).read_bytes() == BODY
    (tmp_path / "good.zip").write_bytes(BODY)
    import_archive(site.archive, tmp_path / "good.zip", folder)
    assert victim.read_bytes() == b"precious"


def test_a_killed_download_is_resumed(site: Site, tmp_path: Path, part: Path) -> None:
    site.answers = [stall]
    with child("fetch", site.archive, tmp_path, limit=UNLIMITED) as doomed:
        try:
            deadline = time.monotonic() + 60
            while not part.exists() or part.stat().st_size < CUT:
                assert doomed.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.005)
        finally:
            doomed.kill()
    assert list(tmp_path.iterdir()) == [part]
    assert_fetched(fetch(site.archive, tmp_path), tmp_path)
    assert site.ranges == [None, f"bytes={CUT}-"]


def test_a_folder_that_cannot_be_made_is_named(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match=f"{tmp_path}/file/folder: Not a directory"):
        fetch(site.archive, tmp_path / "file" / "folder")
    assert site.ranges == []


def test_a_folder_in_the_place_of_the_file_is_named(site: Site, tmp_path: Path) -> None:
    (tmp_path / "tiny.zip").mkdir()
    with pytest.raises(SourceError, match=r"cannot read .*tiny\.zip: not a regular file"):
        fetch(site.archive, tmp_path)


# --- Importing a local copy ----------------------------------------------------------------------


@pytest.fixture
def archive() -> Archive:
    checksum = f"sha256:{hashlib.sha256(BODY).hexdigest()}"
    return Archive("tiny", "http://127.0.0.1/tiny.zip", checksum, "made up")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "archives"


def test_an_imported_copy_lands_where_fetch_finds_it(
    archive: Archive, tmp_path: Path, folder: Path
) -> None:
    source = tmp_path / "Downloads.zip"
    source.write_bytes(BODY)
    assert_fetched(import_archive(archive, source, folder), folder)
    assert_fetched(fetch(archive, folder), folder)
    assert source.read_bytes() == BODY


def test_another_edition_is_refused(archive: Archive, tmp_path: Path, folder: Path) -> None:
    source = tmp_path / "edition.zip"
    source.write_bytes(zipped(1))
    got = f"sha256:{hashlib.sha256(zipped(1)).hexdigest()}"
    with pytest.raises(ChecksumError) as caught:
        import_archive(archive, source, folder)
    assert caught.value.message == f"{source}: expected {archive.checksum}, got {got}"
    assert "--data FILE" in str(caught.value.hint)
    assert list(folder.iterdir()) == []


def test_an_import_replaces_what_fetch_refuses(
    archive: Archive, tmp_path: Path, folder: Path
) -> None:
    folder.mkdir(parents=True)
    (folder / "tiny.zip").write_bytes(b"broken")
    (tmp_path / "good.zip").write_bytes(BODY)
    assert_fetched(import_archive(archive, tmp_path / "good.zip", folder), folder)


def test_a_failed_import_leaves_the_old_file(
    archive: Archive, tmp_path: Path, folder: Path
) -> None:
    folder.mkdir(parents=True)
    (folder / "tiny.zip").write_bytes(BODY)
    (tmp_path / "other.zip").write_bytes(zipped(1))
    with pytest.raises(ChecksumError):
        import_archive(archive, tmp_path / "other.zip", folder)
    assert_fetched(folder / "tiny.zip", folder)


def test_a_missing_source_is_named(archive: Archive, tmp_path: Path, folder: Path) -> None:
    with pytest.raises(SourceError, match=r"cannot read .*none\.zip: No such file"):
        import_archive(archive, tmp_path / "none.zip", folder)
    assert not folder.exists()


def test_an_import_onto_a_full_disk_leaves_nothing(archive: Archive, tmp_path: Path) -> None:
    source, folder = tmp_path / "good.zip", tmp_path / "data"
    source.write_bytes(BODY)
    with child("import_archive", archive, source, folder, limit=CUT) as limited:
        said, _ = limited.communicate(timeout=60)
    assert said.startswith(f"SourceError cannot write {folder / 'tiny.zip'}: File too large")
    assert list(folder.iterdir()) == []


# --- What an archive may be ----------------------------------------------------------------------


def test_the_known_archives_are_listed_by_name() -> None:
    assert list(ARCHIVES) == ["ml-1m", "ml-100k", "book-crossing"]
    for name, archive in ARCHIVES.items():
        assert archive.name == name
        assert archive.url.endswith(f"/{archive.file_name}")
        assert "research" in archive.about
