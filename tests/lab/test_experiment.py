"""Plans: what a TOML file becomes, and what is refused."""

from __future__ import annotations

import json

import pytest

from coldhash.errors import SettingError
from coldhash.lab.experiment import Experiment, Question, experiments_folder

TOML = """
name = "try"
datasets = ["sample"]
splits = 3
scores = ["real", "hamming"]
shots = [0, 5]

[[models]]
model = "mfdcf"
settings = {fit_weight = 2.0}
grid = {n_bits = [16, 32], n_sweeps = [1, 2]}

[[models]]
model = "ddl"
label = "slow"
splits = 1
settings = {hidden = [20, 10]}

[quick]
splits = 1
train_shares = [0.5]
grid = {n_bits = [16]}
"""


def read_toml(tmp_path, text):
    path = tmp_path / "try.toml"
    path.write_text(text, encoding="utf-8")
    return Experiment.from_toml(path)


def test_a_plan_becomes_every_run_once(tmp_path):
    runs = read_toml(tmp_path, TOML).runs()
    assert len(runs) == 2 * 2 * 3 + 1
    assert len({run.key for run in runs}) == len(runs)
    points = {(s["n_bits"], s["n_sweeps"]) for s in map(_settings, runs) if "n_bits" in s}
    assert points == {(16, 1), (16, 2), (32, 1), (32, 2)}
    assert {run.split for run in runs if run.label == "slow"} == {0}
    assert runs[0].questions == (
        Question("sampled-1000", 0, False, "real", 1.0),
        Question("sampled-1000", 0, False, "hamming", 1.0),
        Question("sampled-1000", 5, False, "real", 1.0),
        Question("sampled-1000", 5, False, "hamming", 1.0),
    )
    assert [run.split for run in runs] == sorted(run.split for run in runs)


def test_the_seed_moves_all_splits(tmp_path):
    plan = read_toml(tmp_path, TOML.replace("splits = 3", "splits = 3\nseed = 7", 1))
    assert {run.split for run in plan.runs()} == {7, 8, 9}


def test_quick_replaces_what_was_said_and_nothing_else(tmp_path):
    runs = read_toml(tmp_path, TOML).quick_version().runs()
    assert {run.split for run in runs} == {0}
    assert {_settings(run).get("n_bits") for run in runs} == {16, None}
    assert {run.train_share for run in runs} == {1.0}, "nobody had asked for shares"


def test_a_repeated_run_is_one(tmp_path):
    runs = read_toml(tmp_path, TOML + TOML[TOML.index("[[models]]") : TOML.index("[quick]")])
    assert len(runs.runs()) == 2 * 2 * 3 + 1


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"mfdcf"', '"mfdfc"', "mfdfc"),
        ('["sample"]', '["simple"]', "simple"),
        ("splits = 3", "splits = 0", "splits"),
        ("shots = [0, 5]", "shots = [-1]", "shots"),
        ('"hamming"]', '"haming"]', "scores"),
        ("fit_weight = 2.0", "fit_weight = -2.0", "fit_weight"),
        ("scores =", 'protocols = ["du", "nobody"]\nscores =', "nobody"),
        ("name =", 'nam = "x"\nname =', "nam"),
        ('name = "try"', 'name = "../try"', "name"),
        ("splits = 3", "splits = [", "try.toml"),
    ],
)
def test_a_mistake_is_named(tmp_path, old, new, named):
    assert old in TOML
    with pytest.raises(SettingError, match=named):
        read_toml(tmp_path, TOML.replace(old, new, 1)).runs()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SettingError, match="nowhere"):
        Experiment.from_toml(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    "path", sorted(experiments_folder().glob("*.toml")), ids=lambda path: path.stem
)
def test_the_experiments_that_come_along_are_sound(path):
    plan = Experiment.from_toml(path)
    assert plan.name == path.stem
    assert plan.about
    assert 0 < len(plan.quick_version().runs()) < len(plan.runs())


def _settings(run):
    return json.loads(run.settings)
