"""The demo, as a new user meets it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from coldhash import load

pytestmark = pytest.mark.slow


def test_it_fits_judges_draws_and_says_what_it_found(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "coldhash", "demo", "--no-serve"],
        cwd=tmp_path, capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    found = dict(re.findall(r"^  (\w+) +(0\.\d+)   \(95%", run.stdout, re.M))
    assert set(found) == {"MFDCF", "ridge", "popularity"}
    assert float(found["MFDCF"]) > float(found["popularity"])
    found_line = re.search(r"^Found: .*", run.stdout, re.M)[0]
    # whether it is ahead of ridge or level with it is within what rounding decides
    assert re.search(r"MFDCF .* ridge.* and is better than popularity", found_line)
    assert "worse" not in found_line
    assert len(re.findall(r"^  \d\. item ", run.stdout, re.M)) == 5
    folder = tmp_path / "coldhash-demo"
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (folder / "demo.svg").read_bytes()
    assert len(load(folder / "sample.coldhash").item_ids) == 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["coldhash-demo"]


def test_it_opens_the_page_and_ends_cleanly(tmp_path):
    running = subprocess.Popen(
        [sys.executable, "-m", "coldhash", "demo", "--port", "0", "--out", str(tmp_path)],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, encoding="utf-8",
    )  # fmt: skip
    assert running.stderr is not None
    address = next(
        match[0] for line in running.stderr if (match := re.search(r"http://[\d.]+:\d+", line))
    )
    with urllib.request.urlopen(address) as page:
        assert b"<html" in page.read()
    running.send_signal(signal.SIGINT)
    running.stderr.read()
    assert running.wait(timeout=60) == 0
    running.stderr.close()
