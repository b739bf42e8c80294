from __future__ import annotations

import pytest

from coldhash.errors import SettingError
from coldhash.lab.experiment import experiments_folder
from coldhash.lab.tuning import Study
from coldhash.registry import MODELS

pytest.importorskip("optuna")

STUDY = """
model = "mf"
datasets = ["sample"]
settings = {n_factors = 8}

[space]
map_ridge = {low = 1.0, high = 1000.0, log = true}
n_rounds = {low = 5, high = 30}
bits_per_factor = [32, 8]
"""


def written(tmp_path, text):
    file = tmp_path / "study.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_study_begins_with_the_defaults_of_the_model(tmp_path):
    study = Study.from_toml(written(tmp_path, STUDY))
    model = MODELS["mf"]()
    names = ("map_ridge", "n_rounds", "bits_per_factor")
    assert study.start == {name: getattr(model, name) for name in names}
    assert (study.trials, study.folds, study.k, study.seed, study.score) == (20, 2, 10, 0, "real")


def test_a_range_is_of_whole_numbers_if_both_ends_are(tmp_path):
    study = Study.from_toml(written(tmp_path, STUDY))
    assert [value in study.space["n_rounds"] for value in (5, 6.5, 31)] == [True, False, False]
    assert [value in study.space["map_ridge"] for value in (1, 6.5, "2")] == [True, True, False]


def test_start_stands_in_for_a_default_that_no_range_holds():
    parts = {"model": "mfdcf", "datasets": ["sample"]}
    with pytest.raises(SettingError, match=r"space\.stranger_weight .* default None"):
        Study(**parts, space={"stranger_weight": {"low": 0.1, "high": 0.9}})
    study = Study(**parts, space={"stranger_weight": {"low": 0.1, "high": 0.9, "start": 0.6}})
    assert study.start == {"stranger_weight": 0.6}


def test_lists_in_settings_become_what_the_model_takes():
    study = Study(
        model="ddl",
        datasets=["sample"],
        settings={"hidden": [50, 20]},
        space={"masked": {"low": 0.0, "high": 0.5}},
    )
    assert study.make_model({"masked": 0.25}) == MODELS["ddl"](hidden=(50, 20), masked=0.25)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"mf"', '"nothing"', "model='nothing'"),
        ("n_factors = 8", "no_bits = 8", "no setting is called 'no_bits'"),
        ("n_factors = 8", "n_factors = 0", "n_factors=0"),
        ("n_factors = 8", "n_rounds = 8", "n_rounds is both fixed in settings and tuned"),
        ("map_ridge", "map_rigde", "space='map_rigde'"),
        ("low = 1.0", "lowest = 1.0", r"space\.map_ridge\.Range\.low: Field required"),
        ("low = 5", "low = true", r"space\.n_rounds\.Range\.low"),
        ("low = 5", "low = 31", r"space\.n_rounds\.Range: .*low=31, high=30"),
        ("low = 5", "low = 16", r"space\.n_rounds does not contain the default 15"),
        ("low = 1.0", "low = 0.0", r"space\.map_ridge\.Range: .*low=0\.0"),
        ("low = 5", "low = 0", "MF: n_rounds=0"),
        ("[32, 8]", "[32, 16]", "MF: bits_per_factor=16"),
        ("[32, 8]", "32", r"space\.bits_per_factor"),
        ("[32, 8]", "[8, 4]", r"space\.bits_per_factor does not contain the default 32"),
        ("[space]", "trials = 0\n[space]", "trials"),
        ("[space]", 'score = "best"\n[space]', "score"),
        ("[space]", "fold = 3\n[space]", "fold: Extra inputs"),
        ("[space]", "[space", "not TOML"),
    ],
)
def test_a_mistake_names_the_file_and_the_field(tmp_path, old, new, message):
    file = written(tmp_path, STUDY.replace(old, new, 1))
    with pytest.raises(SettingError, match=message) as caught:
        Study.from_toml(file)
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SettingError, match=r"gone\.toml"):
        Study.from_toml(tmp_path / "gone.toml")


STUDIES = sorted(file.stem for file in (experiments_folder() / "tune").glob("*.toml"))


def test_studies_of_the_methods_whose_defaults_come_from_them_are_shipped():
    assert len(STUDIES) == 14
    assert set(STUDIES) <= set(MODELS)  # a method that is new need not have one


@pytest.mark.parametrize("name", STUDIES)
def test_an_included_study_can_be_run(name):
    study = Study.from_toml(experiments_folder() / "tune" / f"{name}.toml")
    assert study.model == name
    assert study.datasets == ("ml-1m", "book-crossing")
