from __future__ import annotations

import json
import subprocess
import sys

import pytest

import coldhash


def coldhash_command(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "coldhash", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
    )


def test_version():
    run = coldhash_command("--version")
    assert (run.returncode, run.stdout, run.stderr) == (0, f"{coldhash.__version__}\n", "")


def test_describe_ml_1m(data_folder):
    run = coldhash_command("describe", "--dataset", "ml-1m", "--data", data_folder, "--json")
    facts = json.loads(run.stdout)
    counts = ("users", "items", "items_described", "items_rated", "ratings", "sparsity")
    assert [facts[name] for name in counts] == [6040, 3952, 3883, 3706, 1_000_209, 95.81]
    assert facts["groups"]["demographics"] == {"width": 2 + 7 + 21 + 1, "users": 6040}


def test_describe_book_crossing_in_words(data_folder):
    run = coldhash_command("describe", "--dataset", "book-crossing", "--data", data_folder)
    for figure in ("2,151", "6,830", "180,595", "98.77%"):
        assert figure in run.stdout
    assert '[users.demographics]\n  age = "number"' in run.stdout


def test_describe_own_tables(tmp_path):
    (tmp_path / "r.csv").write_text("customer,item,rating\n1,a,5\n2,a,3\n2,b,4\n")
    (tmp_path / "u.csv").write_text("customer,town\n1,Oslo\n2,Rome\n")
    run = coldhash_command(
        "describe", "--ratings", "r.csv", "--users", "u.csv", "--column", "user_id=customer",
        "--json", cwd=tmp_path,
    )  # fmt: skip
    facts = json.loads(run.stdout)
    assert (facts["users"], facts["items"], facts["ratings"]) == (2, 2, 3)
    assert facts["user_columns"]["town"] == {"type": "string", "missing": 0, "distinct": 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe"], "say which data"),
        (["describe", "--dataset", "nothing"], "no data set is called 'nothing'"),
        (["describe", "--ratings", "gone.csv"], "gone.csv"),
        (["describe", "--ratings", "bad.csv"], "bad.csv, line 3"),
        (["describe", "--ratings", "bad.csv", "--column", "rating"], "ROLE=NAME"),
        (["describe", "--dataset", "sample", "--plan", "plan.toml"], "users.who.age"),
        (["fetch", "nothing", "--to", "."], "no data set is called 'nothing'"),
        (["fetch", "ml-1m", "--to", ".", "--from", "bad.csv"], "bad.csv"),
        (["describe", "--no-such-option"], "No such option"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_exit_code_2(tmp_path, arguments, message):
    (tmp_path / "bad.csv").write_text("user,item,rating\n1,a,5\n1,a\n")
    (tmp_path / "plan.toml").write_text('[users.who]\nage = "shoe"\n')
    run = coldhash_command(*arguments, cwd=tmp_path)
    assert run.returncode == 2
    assert run.stdout == ""
    assert message in run.stderr
    assert "Traceback" not in run.stderr


def test_demo_describes_the_sample():
    run = coldhash_command("demo")
    assert run.returncode == 0
    assert "2,000" in run.stdout
    assert "made-up" in run.stderr
