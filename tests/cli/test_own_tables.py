"""Every command that reads takes tables of one's own, whatever their columns are called."""

from __future__ import annotations

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from coldhash import Dataset, load
from coldhash.lab import Experiment, run_experiment
from coldhash.render import write_rows
from commands import coldhash_in_process

TABLES = ("--ratings", "orders.csv", "--users", "people.csv", "--column", "user_id=who")
EXPERIMENT = """
name = "own"
splits = 1
models = [{model = "popularity"}, {model = "ridge", datasets = ["ml-1m"]}]
"""
STUDY = """
model = "ridge"
datasets = ["ml-1m"]
trials = 1
folds = 1
space = {ridge = {low = 1.0, high = 1000.0}}
"""


@pytest.fixture
def shop(tmp_path):
    rng = np.random.default_rng(0)
    orders = {"who": rng.integers(60, size=1500), "sku": rng.integers(25, size=1500)}
    people = {"who": np.arange(60), "age": rng.integers(18, 80, 60)}
    for name, table in (("orders", orders), ("people", people)):
        pyarrow.csv.write_csv(pa.table(table), tmp_path / f"{name}.csv")
    for name, text in (("experiment", EXPERIMENT), ("study", STUDY)):
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    return tmp_path


def run(shop, *arguments):
    found = coldhash_in_process(*arguments, cwd=shop)
    assert found.returncode == 0, found.stderr
    return found.stdout


def read_csv(path):
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_an_experiment_on_own_tables(shop):
    run(shop, "experiment", "experiment.toml", *TABLES, "--out", "runs", "-j", 1)
    rows = read_csv(shop / "runs" / "own" / "results.csv")
    assert [(row["dataset"], row["model"]) for row in rows] == [
        ("data", "popularity"),
        ("data", "ridge"),
    ]
    text = (shop / "runs" / "own" / "results.md").read_text(encoding="utf-8")
    assert f"{float(rows[1]['accuracy@10']):.4f}" in text.splitlines()[3]


def test_other_tables_are_other_runs(shop):
    plan = Experiment(name="own", splits=1, models=[{"model": "popularity"}])
    data = Dataset.from_tables(shop / "orders.csv", columns={"user_id": "who"})
    assert data.fingerprint == Dataset.from_tables(data_of(shop)).fingerprint
    smaller = data.of_users(np.arange(40))
    found = [run_experiment(plan, each, shop, jobs=2) for each in (data, smaller, data)]
    assert [len(each.rows) for each in found] == [1, 1, 1]
    assert found[0].rows == found[2].rows
    assert found[0].rows != found[1].rows
    assert len(list((shop / "own" / "runs").iterdir())) == 2


def data_of(shop):
    table = pa.csv.read_csv(shop / "orders.csv")
    return table.rename_columns(["user_id", "item_id"])


def test_a_study_on_own_tables(shop):
    pytest.importorskip("optuna")
    printed = run(shop, "tune", "study.toml", *TABLES, "--out", ".", "--json")
    assert json.loads(printed)["study"]["datasets"] == ["data"]
    assert [row["state"] for row in read_csv(shop / "ridge.csv")] == ["complete"]
    assert "| complete |" in (shop / "ridge.md").read_text(encoding="utf-8")
    other = coldhash_in_process(
        "tune", "study.toml", "--ratings", "orders.csv", *TABLES[4:], "--out", ".", cwd=shop
    )
    assert other.returncode == 2
    assert "different study: data changed" in other.stderr


def test_a_comparison_is_written(shop):
    command = ("evaluate", *TABLES, "--models", "popularity,ridge", "--splits", 1)
    run(shop, *command, "--out", "found.csv")
    assert [row["model"] for row in read_csv(shop / "found.csv")] == ["popularity", "ridge"]
    wrong = coldhash_in_process(*command, "--out", "found.xlsx", cwd=shop)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert ".csv or .md" in wrong.stderr


def test_columns_of_people_and_of_updates_are_named(shop):
    run(shop, "fit", *TABLES, "--bits", 16, "--out", "m.coldhash")
    new = "client,age\nann,30\n"
    (shop / "new.csv").write_text(new, encoding="utf-8")
    (shop / "bought.csv").write_text("client,thing\nann,3\nann,4\n", encoding="utf-8")
    named = ("--column", "user_id=client")
    found = run(shop, "recommend", "m.coldhash", "--users", "new.csv", *named, "-k", 1, "--json")
    assert json.loads(found)["items"][0]["user_id"] == "ann"
    run(
        shop, "update", "m.coldhash", "--users", "new.csv", "--ratings", "bought.csv", *named,
        "--column", "item_id=thing", "--out", "new.coldhash",
    )  # fmt: skip
    wrong = coldhash_in_process(
        "recommend", "m.coldhash", "--users", "new.csv", "--column", "user_id=nobody", cwd=shop
    )
    assert wrong.returncode == 2
    assert "'nobody'" in wrong.stderr
    model = load(shop / "new.coldhash")
    assert "ann" in model.user_ids
    assert model.columns["user_id"] == "who"


def test_dates_of_items_are_shown(shop):
    days = pa.array(np.arange(25) + 19_000, pa.int32()).cast(pa.date32())
    items = pa.table({"sku": np.arange(25), "released": days})
    pyarrow.parquet.write_table(items, shop / "items.parquet")
    run(shop, "fit", *TABLES, "--items", "items.parquet", "--out", "m.coldhash")
    shown = ("--fields", "released", "--json")
    for command in (("recommend", "--user", '{"age": 30}'), ("similar", "--item", "3")):
        verb, *options = command
        answer = json.loads(run(shop, verb, "m.coldhash", *options, *shown))
        expected = {str(row["sku"]): str(row["released"]) for row in items.to_pylist()}
        assert {
            row["item_id"]: row["released"] for row in answer["items"]
        }.items() <= expected.items()


def test_rows_are_written_as_they_are(tmp_path):
    write_rows([{"a": 'x|"y"', "b": 0.5}, {"c": None}], tmp_path / "t.csv")
    assert read_csv(tmp_path / "t.csv") == [
        {"a": 'x|"y"', "b": "0.5", "c": ""},
        {"a": "", "b": "", "c": ""},
    ]
    write_rows([{"a": "x|y", "b": 0.5}], tmp_path / "t.md")
    text = (tmp_path / "t.md").read_text(encoding="utf-8")
    assert text == "| a | b |\n| --- | ---: |\n| x\\|y | 0.5000 |\n"
