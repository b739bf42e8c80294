"""The files of `deploy/` and the recipe of `examples/nightly.py`, carried out."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import zlib
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldhash import read

ROOT = Path(__file__).parents[2]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextlib.contextmanager
def nginx(folder, backend):
    """Run nginx with our configuration, on ports of its own."""
    port = free_port()
    site = (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8")
    site = site.replace("127.0.0.1:8000", backend).replace("listen 80", f"listen 127.0.0.1:{port}")
    assert backend in site
    places = "".join(
        f"{name}_temp_path {folder}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/log; events {{}}\n"
        f"http {{ access_log off; {places}\n{site}\n}}\n",
        encoding="utf-8",
    )
    command = [
        shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"),
        "-c",
        folder / "nginx.conf",
    ]
    with subprocess.Popen([*command, "-e", folder / "log"]) as process:
        try:
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.terminate()


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") is None, reason="no nginx here"
)
def test_behind_nginx(live, model_files, tmp_path):
    server = live(model_files["a"])
    backend = server.url.removeprefix("http://")
    with nginx(tmp_path, backend) as (url, process), httpx.Client(timeout=60) as client:
        for _ in range(6000):
            assert process.poll() is None, (tmp_path / "log").read_text(encoding="utf-8")
            with contextlib.suppress(httpx.ConnectError):
                client.get(f"{url}/healthz")
                break
            time.sleep(0.02)
        ask = {"user": {"age": 30}, "k": 3}
        direct = server.client.post("/v1/recommend", json=ask).json()
        for prefix in ("", "/films"):
            answer = client.post(f"{url}{prefix}/v1/recommend", json=ask)
            assert answer.json() == direct
            assert len(answer.headers["x-request-id"]) == 32  # that of nginx
            assert "<title>" in client.get(f"{url}{prefix}/").text
        item = client.get(f"{url}/v1/items/a%2Fb/similar")
        assert (item.status_code, item.json()["error"]["field"]) == (404, "item_id")
        batch = {"users": [{"age": age} for age in range(20, 90)], "k": 10}
        headers = {"Accept": "application/x-ndjson"}
        lines = client.post(f"{url}/v1/recommend/batch", json=batch, headers=headers).text
        assert len(lines.splitlines()) == 70
        assert client.post(f"{url}/v1/recommend", content=b" " * 2_000_000).status_code == 413


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_the_systemd_unit_is_valid(tmp_path):
    unit = (ROOT / "deploy" / "coldhash.service").read_text(encoding="utf-8")
    assert "ExecStart=/opt/coldhash/bin/coldhash serve" in unit
    file = tmp_path / "coldhash.service"  # where the program is, is up to the machine
    file.write_text(unit.replace("/opt/coldhash/bin/coldhash", sys.executable), encoding="utf-8")
    run = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", file],
        capture_output=True,
        encoding="utf-8",
    )
    assert (run.returncode, "coldhash.service" in run.stderr) == (0, False), run.stderr


def write_day(folder, data, users, items, broken=False):
    """Write what is known on a day as Parquet: ratings in two files, both tables.

    If a join is broken, what people rated who are trained on has the ids of other items.
    """
    (folder / "ratings").mkdir(parents=True)
    known = data.of_users(users).of_items(items)
    matrix = known.ratings.matrix.tocoo()
    held_out = np.array([zlib.crc32(user.encode()) % 10 == 0 for user in known.user_ids])
    others = np.where(held_out[matrix.row], matrix.col, (matrix.col * 7 + 3) % len(items))
    rated = others if broken else matrix.col
    columns = {
        "user_id": known.user_ids.values.take(pa.array(matrix.row)),
        "item_id": known.item_ids.values.take(pa.array(rated)),
        "rating": matrix.data,
    }
    table, half = pa.table(columns), matrix.nnz // 2
    pq.write_table(table.slice(0, half), folder / "ratings" / "1.parquet")
    pq.write_table(table.slice(half), folder / "ratings" / "2.parquet")
    for name, ids, own in (
        ("user", known.user_ids, known.users),
        ("item", known.item_ids, known.items),
    ):
        with_ids = own.add_column(0, f"{name}_id", ids.values)
        pq.write_table(with_ids, folder / f"{name}s.parquet")


def night(folder, served):
    command = [sys.executable, ROOT / "examples" / "nightly.py", folder, served]
    run = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert run.returncode in (0, 3), run.stderr
    return run.returncode, [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.slow
def test_a_release_by_night(live, tmp_path):
    data = read("sample", n_users=900, n_items=150)
    for day, (n_users, n_items) in {"monday": (600, 140), "tuesday": (900, 150)}.items():
        write_day(tmp_path / day, data, np.arange(n_users), np.arange(n_items))
    served = tmp_path / "films.coldhash"
    assert night(tmp_path / "monday", served) == (0, [])
    server = live(served)
    first = server.version()
    code, judged = night(tmp_path / "tuesday", served)
    assert (code, [line["given"] for line in judged]) == (0, [0, 5])
    assert "behind" not in {line["verdict"] for line in judged}
    server._until(lambda: server.version() != first)
    second = server.version()
    assert 'coldhash_model_swaps_total{result="ok"} 1.0' in server.client.get("/metrics").text
    os.replace(tmp_path / "films.coldhash.before", served)  # roll back
    server.until_version(first)
    assert first != second
    write_day(tmp_path / "wednesday", data, np.arange(900), np.arange(150), broken=True)
    code, judged = night(tmp_path / "wednesday", served)
    assert (code, "behind" in {line["verdict"] for line in judged}) == (3, True)
    assert server.version() == first
    assert 'coldhash_model_swaps_total{result="ok"} 2.0' in server.client.get("/metrics").text
