"""Bootstrap intervals, paired comparisons, and tables of models from Python and the command."""

from __future__ import annotations

import json

import numpy as np
import pytest

from coldhash import read
from coldhash.errors import DataError, SettingError
from coldhash.evaluate.compare import (
    ComparisonRow,
    ComparisonTable,
    Interval,
    UserHits,
    _draw_weights,
    compare,
    compare_models,
    interval,
    is_significant,
)
from coldhash.registry import MODELS
from commands import coldhash_in_process


def hits_of(rng, n_users=200, chance=0.3, ids=None, pairs=None):
    """Users of different luck, around a chance of a hit."""
    ids = np.array([f"u{u}" for u in range(n_users)], dtype=object) if ids is None else ids
    pairs = rng.integers(1, 20, len(ids)) if pairs is None else pairs
    luck = np.clip(chance + rng.normal(0, 0.1, len(ids)), 0, 1)
    return UserHits(ids, rng.binomial(pairs, luck).astype(float), pairs)


def improve(split, by):
    return UserHits(split.user_ids, split.hits + by * split.pairs, split.pairs)


def test_the_mean_is_over_splits_of_pooled_pairs():
    one = UserHits(np.array(["a", "b"]), np.array([1.0, 3.0]), np.array([2, 8]))
    two = UserHits(np.array(["b", "c"]), np.array([1.0, 1.0]), np.array([1, 1]))
    assert interval([one, two]).mean == pytest.approx((4 / 10 + 2 / 2) / 2)
    means = [(1 / 2 + 3 / 8) / 2, 1.0]
    assert interval([one, two], average="users").mean == pytest.approx(np.mean(means))


def test_users_without_pairs_are_no_part_of_a_mean_of_users():
    split = UserHits(np.array(["a", "b", "c"]), np.array([1.0, 1.0, 0.0]), np.array([2, 1, 0]))
    assert interval([split], average="users").mean == pytest.approx((1 / 2 + 1) / 2)


def test_the_interval_holds_the_truth_about_as_often_as_it_says(rng):
    held = 0
    for _ in range(100):
        found = interval([hits_of(rng)])
        held += found.low <= 0.3 <= found.high
        assert found.low < found.mean < found.high
    assert 88 <= held <= 99


def test_the_interval_is_that_of_drawing_users_one_by_one(rng):
    """The plain bootstrap, written out, with a user's weight shared by both splits."""
    first, second = hits_of(rng, 40), hits_of(rng, 40)
    means = []
    for _ in range(3000):
        drawn = rng.integers(40, size=40)
        shares = [s.hits[drawn].sum() / s.pairs[drawn].sum() for s in (first, second)]
        means.append(np.mean(shares))
    found = interval([first, second])
    width = np.ptp(np.quantile(means, [0.025, 0.975]))
    assert found.high - found.low == pytest.approx(width, rel=0.1)
    assert found.low == pytest.approx(np.quantile(means, 0.025), abs=0.1 * width)


def test_a_user_in_two_splits_is_one_person(rng):
    """The same users twice teach nothing new; as many others do."""
    split = hits_of(rng)
    others = UserHits(np.array([f"v{u}" for u in range(200)]), split.hits, split.pairs)

    def width(splits):
        found = interval(splits)
        return found.high - found.low

    assert width([split, split]) == pytest.approx(width([split]))
    assert width([split, others]) == pytest.approx(width([split]) / np.sqrt(2), rel=0.1)


def test_the_same_model_is_tied_with_itself(rng):
    split = hits_of(rng)
    found = compare([split], [split])
    assert (found.difference, found.low, found.high, found.verdict) == (0, 0, 0, "tied")


def test_a_better_model_is_ahead_though_the_intervals_overlap(rng):
    worse = [hits_of(rng), hits_of(rng)]
    better = [improve(split, 0.01) for split in worse]
    assert interval(better).low < interval(worse).high
    found = compare(better, worse)
    assert found.verdict == "ahead"
    assert found.difference == pytest.approx(0.01)
    assert compare(worse, better).verdict == "behind"
    assert compare(worse, better).difference == pytest.approx(-0.01)
    assert compare(better, worse, average="users").verdict == "ahead"


def test_chance_alone_is_mostly_tied(rng):
    pairs = rng.integers(1, 20, 100)
    verdicts = [
        compare([hits_of(rng, 100, pairs=pairs)], [hits_of(rng, 100, pairs=pairs)])
        for _ in range(60)
    ]
    assert sum(found.verdict == "tied" for found in verdicts) >= 50


def test_the_order_of_users_does_not_matter(rng):
    split = hits_of(rng)
    order = rng.permutation(200)
    shuffled = UserHits(split.user_ids[order], split.hits[order], split.pairs[order])
    assert compare([shuffled], [split]).verdict == "tied"
    assert interval([shuffled]).low == pytest.approx(interval([split]).low)


def test_twice_it_is_the_same(rng):
    split = hits_of(rng)
    assert interval([split]) == interval([split])
    drawn = np.vstack(list(_draw_weights(7)))
    assert drawn.shape == (2000, 7)
    assert (drawn.sum(axis=1) == 7).all()


def test_different_users_and_pairs_are_refused(rng):
    split = hits_of(rng)
    more = UserHits(split.user_ids, split.hits, split.pairs + 1)
    fewer = UserHits(split.user_ids[1:], split.hits[1:], split.pairs[1:])
    for other in ([more], [fewer], [split, split]):
        with pytest.raises(DataError, match="split"):
            compare([split], other)


def test_mistakes_are_named(rng):
    split = hits_of(rng)
    with pytest.raises(DataError, match="no split"):
        interval([])
    with pytest.raises(SettingError, match="average='items'"):
        interval([split], average="items")
    with pytest.raises(DataError, match="differ in length"):
        UserHits(np.array(["a"]), np.zeros(2), np.ones(2))
    with pytest.raises(DataError, match="twice"):
        UserHits(np.array(["a", "a"]), np.zeros(2), np.ones(2))
    with pytest.raises(DataError, match="no test pair"):
        UserHits(np.array(["a"]), np.zeros(1), np.zeros(1))
    lonely = [UserHits(np.array([f"u{u}"]), np.ones(1), np.ones(1)) for u in range(30)]
    with pytest.raises(DataError, match="too few users"):
        interval(lonely)


@pytest.fixture(scope="module")
def small():
    return read("sample", n_users=300, n_items=150)


def compare_two(data, protocol, **options):
    models = {"mfdcf": MODELS["mfdcf"](n_bits=8, level=False), "popularity": MODELS["popularity"]()}
    return compare_models(data, models, splits=2, protocol=protocol, **options).rows


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
@pytest.mark.parametrize(
    "protocol",
    ["sampled-1000", "full", "mdcf"],  # mdcf is a mean of users
)
def test_the_interval_is_about_the_accuracy_of_the_protocol(small, protocol):
    for each in compare_two(small, protocol):
        assert each.accuracy.mean == pytest.approx(each.metrics["accuracy@10"])
        assert each.accuracy.low < each.accuracy.mean < each.accuracy.high


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_ties_are_counted_as_the_protocol_counts_them(small):
    models = {"mfdcf": MODELS["mfdcf"](n_bits=8, level=False)}
    found = compare_models(small, models, splits=1, protocol="ddl", score="hamming")
    row = found.rows[0]
    assert row.accuracy.mean == pytest.approx(row.metrics["accuracy@10 optimistic"])
    assert row.accuracy.mean > row.metrics["accuracy@10"], "short codes tie"


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_the_first_model_is_compared_with_the_others_at_every_shot(small):
    found = compare_two(small, "sampled-1000", shots=(0, 3), k=7)
    assert [(each.model, each.shots) for each in found] == [
        ("mfdcf", 0), ("mfdcf", 3), ("popularity", 0), ("popularity", 3),
    ]  # fmt: skip
    assert [each.verdict is None for each in found] == [True, True, False, False]
    assert "accuracy@7" in found[0].metrics


def command(*arguments):
    return coldhash_in_process("evaluate", "--dataset", "sample", *arguments)


@pytest.mark.slow
def test_the_command_prints_one_document():
    run = command("--models", "popularity,ridge", "--splits", "1", "--json")
    assert run.returncode == 0, run.stderr
    document = json.loads(run.stdout)
    assert [each["model"] for each in document["rows"]] == ["popularity", "ridge"]
    assert document["rows"][1]["verdict"] in ("ahead", "tied", "behind")
    assert document["order"] is None


@pytest.mark.slow
def test_the_command_says_how_ratings_were_given():
    run = command("--models", "popularity", "--splits", "1", "--shots", "0,3")
    assert run.returncode == 0, run.stderr
    assert "random" in run.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--models", "popularity,nobody"], "nobody"),
        (["--shots", "few"], "few"),
        (["--protocol", "mine"], "mine"),
        (["--shots", "3", "--order", "backwards"], "backwards"),
        (["--shots", "3", "--order", "time"], "times"),
        (["--models", "popularity", "--score", "hamming"], "no Hamming distance"),
    ],
)
def test_a_mistake_is_told_in_one_line(arguments, named):
    run = command("--splits", "1", *arguments)
    assert run.returncode == 2
    assert run.stdout == ""
    assert named in run.stderr
    assert "Traceback" not in run.stderr


def test_several_comparisons_are_corrected_step_by_step():
    assert is_significant([0.04]) == [True]
    assert is_significant([0.04, 0.04]) == [False, False]
    assert is_significant([0.04, 0.02]) == [True, True]  # 2 x 0.02, then 1 x 0.04
    assert is_significant([0.001, 0.03, 0.03]) == [True, False, False]
    assert is_significant([]) == []


def test_the_p_value_agrees_with_the_interval(rng):
    better = [hits_of(rng, chance=0.4)]
    for by in (0.0, 0.002, 0.02):
        found = compare([improve(split, by) for split in better], better)
        assert (found.p_value < 0.05) == (found.verdict != "tied")
    noise = compare([hits_of(rng, pairs=better[0].pairs)], [hits_of(rng, pairs=better[0].pairs)])
    assert 0 < noise.p_value <= 1


@pytest.fixture(scope="module")
def mixed():
    """A table of two models and a function, none and two ratings given."""
    data = read("sample", n_users=300, n_items=100)
    asked = []

    def by_number(people, history):
        asked.append(history is not None)
        return np.tile(-np.arange(100.0), (people.num_rows, 1))

    models = {"ridge": MODELS["ridge"](), "popularity": MODELS["popularity"](), "mine": by_number}
    table = compare_models(data, models, splits=1, shots=(0, 2), protocol="full")
    assert asked.count(True) == asked.count(False) > 0
    return table


def test_a_function_is_compared_beside_models(mixed):
    by_name = {(row.model, row.shots): row for row in mixed.rows}
    assert by_name["mine", 0].verdict == "ahead"
    assert by_name["mine", 0].accuracy.mean < by_name["ridge", 0].accuracy.mean
    assert mixed.correction == "4 comparisons, corrected by Holm's method"


def test_the_table_becomes_a_frame_and_a_figure(mixed):
    frame = mixed.to_pandas()
    assert frame["model"].tolist() == [row.model for row in mixed.rows]
    assert frame["mean"].tolist() == [row.accuracy.mean for row in mixed.rows]
    assert frame["mrr"].tolist() == [row.metrics["mrr"] for row in mixed.rows]
    assert not {"accuracy", "metrics"} & {*frame.columns}
    (axes,) = mixed.plot().axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["0", "2"]
    assert "accuracy@10" in axes.get_xlabel()


def test_html_is_escaped():
    row = ComparisonRow("<b>", 0, {"mrr": 0.3}, Interval(0.2, 0.15, 0.25), verdict=None)
    shown = ComparisonTable(k=10, rows=(row,))._repr_html_()
    assert "<td>&lt;b&gt;</td>" in shown
    assert "<b>" not in shown
    assert "Holm" not in shown
