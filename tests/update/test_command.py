from __future__ import annotations

import json
from dataclasses import replace

import pytest

from coldhash import MFDCF, load, read
from commands import coldhash_in_process

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.coldhash"
    model = MFDCF(n_bits=32).fit(read("sample", n_users=300, n_items=100))
    judged = {"users": 1, "k": 10, "rows": []}
    replace(model, report={**model.report, "judged": judged}).save(path)
    return path


def update(*arguments):
    return coldhash_in_process("update", *arguments)


def test_update(path, tmp_path):
    (tmp_path / "i.csv").write_text("item_id,genres\nnew,comedy\nother,\n", encoding="utf-8")
    (tmp_path / "r.csv").write_text(
        "user_id,item_id,rating\n1,new,5\nann,new,4\n", encoding="utf-8"
    )
    (tmp_path / "u.csv").write_text("user_id,age\nann,33\n", encoding="utf-8")
    (tmp_path / "gone.txt").write_text("3\n4\n", encoding="utf-8")
    out = tmp_path / "new.coldhash"
    run = update(
        path, "--out", out, "--add-items", tmp_path / "i.csv", "--ratings", tmp_path / "r.csv",
        "--users", tmp_path / "u.csv", "--remove-items", tmp_path / "gone.txt", "--json",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    changes = json.loads(run.stdout)["changes"]
    assert changes["removed"]["items_removed"] == ["3", "4"]
    assert changes["items"]["items_added"] == {"new": "ratings", "other": "average"}
    assert changes["users"]["users_added"] == ["ann"]
    model = load(out)
    assert len(model.item_ids) == 100
    assert "new" not in model.recommend(user_ids=["1"], k=100).item_ids[0]
    assert "3" not in model.item_ids
    assert "judged" in load(path).report
    assert "judged" not in model.report


def test_mistakes(path, tmp_path):
    nothing = update(path, "--out", tmp_path / "x")
    assert nothing.returncode == 2
    assert "--add-items" in nothing.stderr
    (tmp_path / "gone.txt").write_text("no such item\n", encoding="utf-8")
    unknown = update(path, "--out", tmp_path / "x", "--remove-items", tmp_path / "gone.txt")
    assert unknown.returncode == 2
    assert "no such item" in unknown.stderr
    assert not (tmp_path / "x").exists()
