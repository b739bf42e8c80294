from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from coldhash import read, split_cold_users
from coldhash.baselines.controls import Popularity, Ridge
from coldhash.errors import DataError, SettingError
from coldhash.evaluate.metrics import accuracy_at
from coldhash.evaluate.protocol import make_trial, rank, scorer
from coldhash.lab.tuning import Attempt, Study, StudyResult, make_folds, run_study

pytestmark = pytest.mark.slow

pytest.importorskip("optuna")

RIDGE = {"low": 0.1, "high": 1e5, "log": True}
STUDY = Study(model="ridge", datasets=["sample"], trials=4, folds=2, space={"ridge": RIDGE})
WORLD = {"n_users": 300, "n_items": 120}


@pytest.fixture(scope="module")
def datasets():
    return {"sample": read("sample", **WORLD)}


@pytest.fixture(scope="module")
def long_study(datasets, tmp_path_factory):
    """A study that was run from the first trial to the last, and its folder."""
    folder = tmp_path_factory.mktemp("long")
    return run_study(STUDY.replace(trials=12), datasets, folder), folder


def found(tuned):
    """What must not depend on how a study was run."""
    return [replace(attempt, seconds=0.0) for attempt in tuned.attempts]


def test_folds_lie_within_the_training_users(datasets):
    train, cold = split_cold_users(datasets["sample"], share=0.2, seed=0)
    folds = make_folds(STUDY, datasets)
    assert [(fold.facts["n_train"], fold.facts["n_cold"]) for fold in folds] == [(192, 48)] * 2
    for fold in folds:
        users = set(fold.train.ratings.users.values.to_pylist())
        assert users < set(train.ratings.users.values.to_pylist())
        assert not users & set(cold.ratings.users.values.to_pylist())


def test_what_cold_users_rate_changes_nothing(datasets, long_study, tmp_path):
    ratings = datasets["sample"].ratings
    cold = split_cold_users(datasets["sample"], share=0.2, seed=0)[1].ratings.users
    rows = set(ratings.users.rows(cold.values).tolist())
    owners = np.repeat(np.arange(len(ratings.users)), ratings.per_user)
    kept = np.array([owner not in rows for owner in owners])
    blind = {"sample": datasets["sample"].with_ratings(ratings.where(kept))}
    unseen = run_study(STUDY, blind, tmp_path)
    assert found(unseen) == found(long_study[0])[:4]
    assert unseen.folds == long_study[0].folds


def test_the_value_is_accuracy_over_that_of_popularity(datasets, long_study):
    tuned, _ = long_study
    train, _ = split_cold_users(datasets["sample"], share=0.2, seed=0)
    values = []
    for fold in (0, 1):
        warm, cold = split_cold_users(train, share=0.2, seed=1000 + fold)
        trial = make_trial(warm, cold, seed=1000 + fold)
        own, popular = (
            accuracy_at(10, ranks.greater, ranks.equal)
            for ranks in (rank(scorer(m.fit(warm)), trial) for m in (Ridge(), Popularity()))
        )
        values.append(own / popular)
    assert tuned.default.by_fold == pytest.approx(values)
    assert tuned.default.value == pytest.approx(sum(values) / 2)


def test_the_defaults_are_the_first_trial_and_the_best_is_no_worse(long_study):
    tuned, _ = long_study
    assert len(tuned.attempts) == 12
    assert tuned.default is tuned.attempts[0]
    assert tuned.attempts[0].settings == {"ridge": Ridge().ridge}
    assert len({attempt.settings["ridge"] for attempt in tuned.attempts}) == 12
    complete = [attempt for attempt in tuned.attempts if attempt.state == "complete"]
    assert tuned.best.value == max(attempt.value for attempt in complete)
    assert tuned.improvement >= 0


def test_a_study_repeats_itself_and_stopping_changes_nothing(datasets, long_study, tmp_path):
    whole, _ = long_study
    run_study(STUDY.replace(trials=3), datasets, tmp_path / "parts")
    parts = run_study(STUDY.replace(trials=12), datasets, tmp_path / "parts")
    assert found(whole) == found(parts)
    assert {attempt.state for attempt in whole.attempts} == {"complete", "pruned"}
    other = run_study(STUDY.replace(seed=1, trials=2), datasets, tmp_path / "other")
    assert other.attempts[1].settings != whole.attempts[1].settings


def test_a_pruned_trial_was_worse_than_the_middle(long_study):
    tuned, _ = long_study
    for n, attempt in enumerate(tuned.attempts):
        if attempt.state == "pruned":
            assert len(attempt.by_fold) == 1
            before = [each.by_fold[0] for each in tuned.attempts[:n] if each.state == "complete"]
            assert attempt.by_fold[0] < np.median(before)


KILLED = """
import os, signal, sys
from coldhash import read
from coldhash.lab import Study, run_study

def die(done, total):
    if done == float(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

study = Study.from_toml(sys.argv[1])
run_study(study, {"sample": read("sample", n_users=300, n_items=120)}, sys.argv[2], progress=die)
"""
TOML = """
model = "ridge"
datasets = ["sample"]
trials = 4
space = {ridge = {low = 0.1, high = 1e5, log = true}}
"""


@pytest.mark.parametrize("moment", ["0.5", "2.5"])
def test_a_study_that_was_killed_goes_on(datasets, long_study, tmp_path, moment):
    (tmp_path / "study.toml").write_text(TOML, encoding="utf-8")
    command = [sys.executable, "-c", KILLED, tmp_path / "study.toml", tmp_path / "killed", moment]
    run = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert run.returncode == -9, run.stderr
    report = tmp_path / "killed" / "ridge.json"
    kept = json.loads(report.read_text(encoding="utf-8"))["trials"] if report.exists() else []
    assert len(kept) == int(float(moment))
    resumed = run_study(STUDY, datasets, tmp_path / "killed")
    assert found(resumed) == found(long_study[0])[:4]


def test_only_the_number_of_trials_may_change(datasets, long_study):
    _, folder = long_study
    again = run_study(STUDY.replace(trials=2), datasets, folder)
    assert len(again.attempts) == 12
    for changed in (
        {"folds": 1},
        {"k": 5},
        {"seed": 2},
        {"space": {"ridge": RIDGE | {"low": 1.0}}},
    ):
        with pytest.raises(SettingError, match=f"{next(iter(changed))} changed; hint: .* --out"):
            run_study(STUDY.replace(**changed), datasets, folder)


def test_a_study_is_run_by_one_process_at_a_time(datasets, tmp_path):
    def begin_again(*_):
        run_study(STUDY, datasets, tmp_path)

    with pytest.raises(SettingError, match="another process"):
        run_study(STUDY, datasets, tmp_path, progress=begin_again)


def test_mistakes_of_data_are_named(datasets, tmp_path):
    with pytest.raises(SettingError, match="'ml-1m'"):
        run_study(STUDY.replace(datasets=["ml-1m"]), datasets, tmp_path)
    few = {"sample": datasets["sample"].of_users(np.arange(3))}
    with pytest.raises((DataError, SettingError), match="leaves a part empty"):
        run_study(STUDY, few, tmp_path)


def test_progress_is_told_fold_by_fold(datasets, tmp_path):
    calls = []
    run_study(STUDY, datasets, tmp_path, progress=lambda *each: calls.append(each))
    assert calls == [(n / 2, 4) for n in range(1, 9)]


def test_the_report_is_plain_and_names_no_folder(datasets, tmp_path):
    tuned = run_study(STUDY.replace(trials=1), datasets, tmp_path)
    text = (tmp_path / "ridge.json").read_text(encoding="utf-8")
    report = json.loads(text)
    assert report == json.loads(json.dumps(tuned.to_dict()))
    assert Study(**report["study"]) == STUDY.replace(trials=1)
    assert report["best"]["settings"] == tuned.best.settings
    assert len(report["trials"]) == 1
    assert str(tmp_path) not in text


def test_gain_and_noise_are_of_the_differences_fold_by_fold():
    study = STUDY.replace(datasets=["sample", "ml-1m"])
    default = Attempt({"ridge": 100.0}, "complete", 0.75, (0.5, 1.0, 0.5, 1.0), 1.0)
    best = Attempt({"ridge": 7.0}, "complete", 1.0, (0.8, 1.2, 0.6, 1.4), 1.0)
    bad = Attempt({"ridge": 1.0}, "pruned", 9.0, (9.0, 9.0), 1.0)  # is not judged on all folds
    tuned = StudyResult(study, (), (default, best, bad))
    assert tuned.best is best
    assert tuned.improvement == pytest.approx((0.3 + 0.2 + 0.1 + 0.4) / 4)
    variances = (0.1**2 + 0.1**2) / (2 - 1), (0.1**2 + 0.1**2) / (2 - 1)
    assert tuned.noise == pytest.approx(np.sqrt(sum(variances) / 2))


def test_what_one_data_set_gains_more_than_another_is_no_noise():
    study = STUDY.replace(datasets=["sample", "ml-1m"])
    default = Attempt({"ridge": 100.0}, "complete", 1.0, (1.0,) * 4, 1.0)
    best = Attempt({"ridge": 7.0}, "complete", 1.25, (1.0, 1.5, 1.0, 1.5), 1.0)
    assert StudyResult(study, (), (default, best)).noise == 0


@pytest.mark.parametrize("order", [["easy", "hard"], ["hard", "easy"]])
def test_pruning_waits_until_all_data_sets_were_seen_and_takes_their_mean(order, tmp_path):
    """However far the values of the data sets are apart, and whichever comes first."""
    worlds = {
        "easy": read("sample", n_users=300, n_items=120),
        "hard": read("sample", n_users=150, n_items=400, seed=1),
    }
    tuned = run_study(STUDY.replace(datasets=order, trials=12), worlds, tmp_path)
    first = [np.mean(attempt.by_fold[:2]) for attempt in tuned.attempts]
    for n, attempt in enumerate(tuned.attempts):
        whole = [m for m, a in zip(first[:n], tuned.attempts, strict=False) if len(a.by_fold) == 4]
        hopeless = len(whole) >= 5 and first[n] < np.median(whole)
        assert (attempt.state, len(attempt.by_fold)) == (
            ("pruned", 2) if hopeless else ("complete", 4)
        )
    assert any(attempt.state == "pruned" for attempt in tuned.attempts)


def test_one_fold_has_no_noise():
    study = STUDY.replace(folds=1)
    default = Attempt({"ridge": 100.0}, "complete", 1.0, (1.0,), 1.0)
    assert StudyResult(study, (), (default,)).noise is None


def test_without_optuna_the_way_out_is_told():
    code = """
import sys
sys.modules["optuna"] = None
from coldhash.lab import Study, run_study
study = Study(model="ridge", datasets=["sample"], space={"ridge": {"low": 1.0, "high": 1e5}})
run_study(study, {}, "nowhere")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert "SettingError" in run.stderr
    assert "coldhash[tune]" in run.stderr
