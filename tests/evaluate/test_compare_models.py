"""Models side by side, from Python and from the command line."""

from __future__ import annotations

import json

import pytest

from coldhash import read
from coldhash.evaluate.compare_models import beside
from coldhash.registry import MODELS
from commands import coldhash_command


@pytest.fixture(scope="module")
def small():
    return read("sample", n_users=300, n_items=150)


def standings(data, protocol, **options):
    models = {"mfdcf": MODELS["mfdcf"](n_bits=8), "popularity": MODELS["popularity"]()}
    return beside(data, models, splits=2, protocol=protocol, **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
@pytest.mark.parametrize(
    ("protocol", "score", "metric"),
    [
        ("sampled-1000", "real", "accuracy@10"),
        ("full", "real", "accuracy@10"),
        ("mdcf", "real", "accuracy@10"),  # a mean of users
    ],
)
def test_the_interval_is_about_the_accuracy_of_the_protocol(small, protocol, score, metric):
    for each in standings(small, protocol, score=score):
        assert each.sure.mean == pytest.approx(each.metrics[metric])
        assert each.sure.low < each.sure.mean < each.sure.high


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_ties_are_counted_as_the_protocol_counts_them(small):
    ours = beside(small, {"mfdcf": MODELS["mfdcf"](n_bits=8)}, splits=1, protocol="ddl",
                  score="hamming")[0]  # fmt: skip
    assert ours.sure.mean == pytest.approx(ours.metrics["accuracy@10 optimistic"])
    assert ours.sure.mean > ours.metrics["accuracy@10"], "short codes tie"


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_the_first_model_is_compared_with_the_others_at_every_shot(small):
    found = standings(small, "sampled-1000", shots=(0, 3), k=7)
    assert [(each.model, each.shots) for each in found] == [
        ("mfdcf", 0), ("mfdcf", 3), ("popularity", 0), ("popularity", 3),
    ]  # fmt: skip
    assert [each.versus is None for each in found] == [True, True, False, False]
    assert "accuracy@7" in found[0].metrics


def command(*arguments):
    return coldhash_command("evaluate", "--dataset", "sample", *arguments)


@pytest.mark.slow
def test_the_command_prints_one_document():
    run = command("--models", "popularity,ridge", "--splits", "1", "--json")
    assert run.returncode == 0, run.stderr
    document = json.loads(run.stdout)
    assert [each["model"] for each in document["models"]] == ["popularity", "ridge"]
    assert document["models"][1]["first_is"] in ("ahead", "level", "behind")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--models", "popularity,nobody"], "nobody"),
        (["--shots", "few"], "few"),
        (["--protocol", "mine"], "mine"),
        (["--models", "popularity", "--score", "hamming"], "no Hamming distance"),
    ],
)
def test_a_mistake_is_told_in_one_line(arguments, named):
    run = command("--splits", "1", *arguments)
    assert run.returncode == 2
    assert run.stdout == ""
    assert named in run.stderr
    assert "Traceback" not in run.stderr
