"""The demo, as a new user meets it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from functools import partial

import pytest

from coldhash import load, read
from commands import coldhash_in_process

pytestmark = pytest.mark.slow


def test_it_shows_strangers_judges_opens_the_page_and_ends_cleanly(tmp_path):
    with (tmp_path / "stdout").open("w+", encoding="utf-8") as stdout:
        running = subprocess.Popen(
            [sys.executable, "-m", "coldhash", "demo", "--port", "0"],
            cwd=tmp_path, stdout=stdout, stderr=subprocess.PIPE, encoding="utf-8",
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
        stdout.seek(0)
        text = stdout.read()
    titles = set(read("sample").items.column("title").to_pylist())
    lists = re.search(r"Three strangers.*?\n(.*?)\nThe first one", text, re.S)[1].split("\n")
    assert len(lists) == 3 * (1 + 5)
    assert {line.strip(" +") for at, line in enumerate(lists) if at % 6} <= titles
    changed = text.partition("\nand gets\n")[2].split("\n")[:5]
    assert {line.strip(" +").removesuffix("  (new)") for line in changed} <= titles
    assert len(re.findall(r"^  \d of 5: ", text, re.M)) == 5
    ours, popular = (
        [float(figure) for figure in re.findall(pattern, text)]
        for pattern in (r"(0\.\d+)  \(95%", r"popularity, (0\.\d+)")
    )
    assert len(ours) == len(popular) == 2
    # features matter as much as in MovieLens-1M, and five ratings more
    assert 1.05 < ours[0] / popular[0] < 1.16
    assert 1.2 < ours[1] / popular[0] < 1.45
    folder = tmp_path / "coldhash-demo"
    model = load(folder / "sample.coldhash")
    assert len(model.item_ids) == 1000
    assert model.report["judged"]["rows"][0]["verdict"] == "ahead"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["coldhash-demo", "stdout"]


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_without_a_page_it_ends_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr("coldhash.read", partial(read, n_users=300, n_items=100))
    run = coldhash_in_process("demo", "--no-serve", "--out", tmp_path / "out")
    assert run.returncode == 0, run.stderr
    assert "http://" not in run.stderr
    assert len(load(tmp_path / "out" / "sample.coldhash").item_ids) == 100
