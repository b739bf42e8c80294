"""What a server leaves behind: no word of what people sent, and no file."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# At start-up, in the server and its workers: all loggers talk about everything, and whatever is
# opened for writing, made, moved, removed or connected to is noted.
WATCHER = """
import logging, os, sys
logging.basicConfig(level=1)
notes = os.open(os.environ["WATCHER_NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink",
           "os.truncate", "os.chmod", "os.chown", "os.utime", "socket.connect", "os.system",
           "sqlite3.connect")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

def watch(event, args):
    if event == "open" and isinstance(args[0], (str, bytes)) and args[2] & WRITES:
        os.write(notes, f"open\\t{os.fsdecode(args[0])}\\n".encode())
    elif event in CHANGES:
        what = str(args[0] if event[:2] == "os" else args[1])
        if event in ("os.remove", "os.rmdir") and args[1] >= 0:  # within a folder that is open
            what = os.path.join(os.readlink(f"/proc/self/fd/{args[1]}"), what)
        os.write(notes, f"{event}\\t{what}\\n".encode())

sys.addaudithook(watch)
"""
CANARIES = {
    "value": "kanarievalue", "number": "73.0625", "field": "kanariefield", "item": "kanarieitem",
    "user": "kanarieuser", "search": "kanariesearch", "path": "kanariepath", "head": "kanariehead",
    "token": "kanarietoken", "kind": "kanariekind",
}  # fmt: skip


# where numba keeps compiled code; None: in __pycache__, beside the source
CACHE = Path(os.environ["NUMBA_CACHE_DIR"]).resolve() if os.environ.get("NUMBA_CACHE_DIR") else None


@pytest.fixture
def watched(live, tmp_path):
    """Start a server in a home of its own that writes down what it does."""
    for name in ("home", "tmp", "site"):
        (tmp_path / name).mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WATCHER, encoding="utf-8")
    path = [str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]
    cache = {"NUMBA_CACHE_DIR": str(CACHE)} if CACHE else {}  # the server starts elsewhere

    def start(*arguments):
        return live(
            *arguments,
            PYTHONPATH=os.pathsep.join(filter(None, path)),
            PYTHONASYNCIODEBUG="1",
            PYTHONDONTWRITEBYTECODE="1",
            WATCHER_NOTES=str(tmp_path / "notes"),
            HOME=str(tmp_path / "home"),
            TMPDIR=str(tmp_path / "tmp"),
            **cache,
        )

    return start


def ask_all_kinds_of_things(server):
    """Good, bad and broken requests, a canary in every place that a request has."""
    c, client = CANARIES, server.client
    person = {"gender": c["value"], "age": float(c["number"]), "user_id": c["user"]}
    rated = person | {"history": {c["item"]: 3, "a1": 4.0625}}
    for path, body in [
        ("/v1/recommend", {"user": person}),
        ("/v1/recommend", {"user": rated, "k": 3}),
        ("/v1/recommend", {"user": rated | {c["field"]: c["value"]}}),
        ("/v1/recommend", {"user": {"age": c["value"]}}),
        ("/v1/recommend", {"user": {"history": {c["item"]: float(c["number"])}}}),
        ("/v1/recommend", {"user_id": c["user"]}),
        ("/v1/recommend", {"user": {}, "exclude": [c["item"]], c["field"]: 1}),
        ("/v1/recommend/batch", {"users": [rated, person], "k": 2}),
        ("/v1/recommend/batch", {"user_ids": [c["user"]]}),
        ("/v1/encode", {"user": rated}),
        ("/v1/explain", {"user": rated, "item_id": "a1"}),
        ("/v1/explain", {"user": rated, "item_id": c["item"]}),
    ]:
        client.post(path, json=body)
    client.post("/v1/recommend", json={"user": {"gender": c["value"] * 200_000}})
    client.post("/v1/recommend", content=f'{{"user": "{c["value"]}'.encode())
    client.post("/v1/recommend", content=b"{}", headers={"Content-Type": c["kind"]})
    client.get("/v1/items", params={"search": c["search"]})
    client.get(f"/v1/items/{c['item']}/similar?k={c['search']}")
    client.get(f"/{c['path']}?{c['search']}", headers={c["head"]: c["value"]})
    client.get("/v1/model", headers={"Authorization": f"Bearer {c['token']}"})
    client.get("/v1/model", headers={"X-Request-ID": f"{c['head']} {c['value']}"})
    address = ("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
    for raw in (
        f"GET /{c['path']} HTTP/9.9\r\n\r\n",
        f"{c['value']} / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        f"GET / HTTP/1.1\r\n{c['head']} {c['value']}\r\n\r\n",
        f"GET / HTTP/1.1\r\nhost: {c['head']}\r\nupgrade: {c['value']}\r\n"
        "connection: upgrade\r\n\r\n",
        f"POST /v1/encode HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900\r\n\r\n{c['value']}",
    ):
        with socket.create_connection(address, 60) as connection:
            connection.sendall(raw.encode())
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
    assert client.get("/healthz").status_code == 200


def tree(folder):
    """All files below a folder, with what is in them."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("workers", "token"), [(1, None), (2, "kanariesecret")])
def test_a_server_keeps_nothing_of_what_somebody_sent(
    watched, model_files, tmp_path, monkeypatch, capfd, workers, token
):
    """No word in its log, and no file."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)  # where the server is started
    before = tree(model_files["a"].parent)
    arguments = ["--workers", workers]
    if token is not None:
        (tmp_path / "token").write_text(token, encoding="utf-8")
        arguments += ["--token-file", tmp_path / "token"]
    server = watched(model_files["a"], *arguments)
    server.client.headers["Authorization"] = f"Bearer {token}"
    ask_all_kinds_of_things(server)
    assert "coldhash_requests_total" in server.client.get("/metrics").text
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(120)
    written = server.log() + "".join(capfd.readouterr())
    assert "Using selector" in written  # asyncio's logger does talk
    assert len([line for line in written.splitlines() if '"route"' in line]) >= 20
    for canary in (*CANARIES.values(), "kanarie", "4.0625"):
        assert canary not in written.lower()
    assert tree(model_files["a"].parent) == before
    for folder in (place, tmp_path / "home", tmp_path / "tmp"):
        assert list(folder.iterdir()) == []
    notes = [
        line.split("\t") for line in (tmp_path / "notes").read_text(encoding="utf-8").splitlines()
    ]
    others = [note for note in notes if not expected(*note, tmp_path / "tmp")]
    assert not others
    if workers > 1:
        assert any("coldhash-serve-" in path for _, path in notes)  # the watcher does watch


def expected(event, path, temporary):
    """Tell whether a server writes there.

    Compiled code goes to numba's cache, figures of workers to a folder that is gone later, and the
    copy of the model to a file without a name, for which the temporary folder itself is opened.
    """
    own = Path(path)
    cached = "__pycache__" in own.parts or (CACHE is not None and own.is_relative_to(CACHE))
    if cached or path == os.devnull:
        return event != "socket.connect"
    return own.is_relative_to(temporary) and (event == "open" or own != temporary)


def test_the_watcher_sees_what_is_written(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WATCHER, encoding="utf-8")
    script = "open('new', 'w').close(); import os; os.mkdir('folder'); os.remove('new')"
    subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        check=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "WATCHER_NOTES": str(tmp_path / "notes")},
    )
    notes = (tmp_path / "notes").read_text(encoding="utf-8").splitlines()
    assert notes == ["open\tnew", "os.mkdir\tfolder", "os.remove\tnew"]
