from __future__ import annotations

import json

import pytest

from coldhash.baselines.controls import Ridge
from commands import coldhash_in_process

pytest.importorskip("optuna")

STUDY = """
model = "ridge"
datasets = ["sample"]
trials = 3
folds = 1

[space]
ridge = {low = 1.0, high = 1000.0, log = true}
"""


@pytest.mark.slow
def test_a_study_of_a_file_and_its_resumption(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    first = coldhash_in_process("tune", "study.toml", "--out", "out", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert f"default:\n  settings:\n    ridge: {Ridge().ridge}\n" in first.stdout
    assert "Warning" not in first.stderr
    again = coldhash_in_process(
        "tune", "study.toml", "--out", "out", "--trials", 4, "--json", cwd=tmp_path
    )
    report = json.loads(again.stdout)
    assert report == json.loads((tmp_path / "out" / "ridge.json").read_text(encoding="utf-8"))
    assert len(report["trials"]) == report["study"]["trials"] == 4
    assert str(tmp_path) not in again.stdout


@pytest.mark.slow
def test_the_study_that_is_shipped_on_other_data(tmp_path):
    run = coldhash_in_process(
        "tune", "ridge", "--dataset", "sample", "--trials", 2, "--out", ".", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    report = json.loads(run.stdout)
    assert report["study"]["datasets"] == ["sample"]
    assert len(report["trials"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["popularity"], "popularity"),
        (["gone.toml"], "gone.toml"),
        (["bad.toml"], "bad.toml: Study, space.ridge.Range.hihg"),
        (["study.toml", "--dataset", "nothing"], "no data set is called 'nothing'"),
        (["study.toml", "--dataset", "ml-1m"], "ml-1m needs the path"),
        (["study.toml", "--trials", "0"], "Study, trials"),
    ],
)
def test_a_mistake_is_reported_in_one_line_with_exit_code_2(tmp_path, arguments, message):
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    (tmp_path / "bad.toml").write_text(
        STUDY.replace("high", "hihg, high").replace("hihg,", "hihg = 1,"), encoding="utf-8"
    )
    run = coldhash_in_process("tune", *arguments, "--out", "out", cwd=tmp_path)
    assert run.returncode == 2
    assert run.stdout == ""
    assert message in run.stderr
    assert "Traceback" not in run.stderr
