from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

import coldhash as ch
from coldhash.baselines.controls import Ridge
from coldhash.errors import DataError, SettingError


@pytest.fixture(scope="module")
def data():
    return ch.read("sample", n_users=400, n_items=120)


@pytest.fixture(scope="module")
def model(data):
    return ch.MFDCF(n_bits=32).fit(data)


def names(questions):
    return [question["name"] for question in questions]


def test_questions_are_distinct_and_the_same_every_time(model):
    asked = model.ask({"age": 30}, 8)
    assert asked == model.ask({"age": 30}, 8)
    assert len(set(names(asked))) == 8
    assert all(0 <= question["gain"] <= 1 and question["why"] for question in asked)


def test_questions_are_the_same_at_any_number_of_blas_threads(model):
    person = {"age": 30, "answers": {"7": 5, "12": None}}
    found = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, "blas"):
            found.append(model.ask(person, 8))
    assert found[0] == found[1]


def test_what_was_answered_rated_or_left_out_is_not_asked(model):
    first = names(model.ask({}, 3, kinds=["items"]))
    person = {"answers": {first[0]: None}, "history": {first[1]: 5}}
    asked = names(model.ask(person, len(model.item_ids), kinds=["items"], exclude=[first[2]]))
    assert len(asked) == len(model.item_ids) - 3
    assert not {*first} & {*asked}


def test_only_candidates_and_missing_fields_are_asked(model):
    assert {*names(model.ask({}, 9, kinds=["items"], candidates=["7", "12"]))} == {"7", "12"}
    fields = names(model.ask({"age": 30, "gender": ""}, 9, kinds=["fields"]))
    assert {*fields} == {"gender", "occupation", "city"}


def test_every_answer_leaves_less_to_settle(model):
    askable, person = np.ones(len(model.item_ids), bool), {}
    before = open_list(model, person)
    for item in names(model.ask({}, 4, kinds=["items"])):
        person[item] = None
        after = open_list(model, person)
        removed = np.linalg.eigvalsh(before.covariance - after.covariance)
        assert removed[-1] > 1e-6
        assert removed[0] > -1e-6
        before = after
    assert next(model.encoder.answers.questions(before, askable))[1] > 0


def test_questions_are_about_what_may_be_on_the_list(model):
    everything = np.arange(len(model.item_ids))
    found = open_list(model, {}, excluded=everything[:-2])
    assert {*found.rows.tolist()} == {*everything[-2:].tolist()}
    # between two items only the difference counts
    assert np.linalg.matrix_rank(found.metric) == 1


def open_list(model, answers, excluded=()):
    vector = model.encode({}).vectors[0]
    return model.encoder.answers.open_list(
        vector, answers_of(model, answers), np.array(excluded, int)
    )


def answers_of(model, answers):
    items = model.item_ids.rows(list(answers))
    unknown = np.full(len(items), np.nan, np.float32)
    return csr_array((unknown, items, [0, len(items)]), shape=(1, len(model.item_ids)))


def test_answers_move_the_list_and_the_rated_ones_leave_it(model):
    item, other = names(model.ask({}, 2, kinds=["items"]))
    plain, said = (model.encode({**each}) for each in ({}, {"answers": {item: 5, other: None}}))
    assert said.fallback.tolist() == [False]
    assert not np.array_equal(plain.vectors, said.vectors)
    listed = model.recommend({"answers": {item: 5, other: None}}, k=len(model.item_ids)).item_ids[0]
    assert item not in listed
    assert other in listed


def test_liking_and_disliking_an_item_move_its_score_apart(model):
    item = names(model.ask({}, kinds=["items"]))[0]
    row = model.item_ids.rows([item])
    low, high = (model.encode({"answers": {item: value}}).vectors for value in (1, 5))
    assert (high - low) @ model.items.rows(row)[0] > 0


def test_contributions_with_answers_add_up(model):
    why = model.explain({"age": 30, "answers": {"7": 5, "9": None}}, "12")
    assert {"asked 7", "asked 9"} <= {*why["contributions"]}
    assert sum(why["contributions"].values()) == pytest.approx(why["score"])


def test_a_saved_model_asks_the_same(model, tmp_path):
    model.save(tmp_path / "m.coldhash")
    person = {"answers": {"7": 5, "9": None}}
    assert names(ch.load(tmp_path / "m.coldhash").ask(person, 4)) == names(model.ask(person, 4))


@pytest.mark.parametrize("options", [{"n": 0}, {"kinds": ["movies"]}, {"exclude": ["no such"]}])
def test_impossible_options_are_errors(model, options):
    with pytest.raises(ch.errors.ColdhashError):
        model.ask({}, **options)


def test_answers_are_a_dict_of_ratings(model):
    with pytest.raises(DataError, match="answers"):
        model.encode({"answers": ["7"]})
    with pytest.raises(DataError, match="outside the scale"):
        model.encode({"answers": {"7": 99}})


def test_other_methods_say_that_they_do_not_ask(data):
    with pytest.raises(SettingError, match="does not learn from answers"):
        Ridge().fit(data).ask({})


def test_the_command_and_the_service_ask_the_same(model, tmp_path, capsys, monkeypatch):
    pytest.importorskip("starlette")
    import json

    from starlette.testclient import TestClient

    from coldhash.cli import main
    from coldhash.serve.app import create_app

    model.save(tmp_path / "m.coldhash")
    person = {"age": 30, "answers": {"7": 5, "9": None}}
    plain = names(model.ask(person, 3))
    other = next(row for row in range(len(model.item_ids)) if model.item_ids[row] not in plain)
    where = {"title": model.titles[other].as_py()}
    expected = names(model.ask(person, 3, where=where))
    assert expected != plain
    command = ["coldhash", "ask", str(tmp_path / "m.coldhash"), "-n", "3", "--json"]
    command += ["--where", f"title={where['title']}"]
    monkeypatch.setattr("sys.argv", [*command, "--user", json.dumps(person)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert names(json.loads(capsys.readouterr().out)["questions"]) == expected
    with TestClient(create_app(model, log=lambda _: None)) as client:
        answer = client.post("/v1/ask", json={"user": person, "n": 3, "where": where})
        refused = client.post("/v1/ask", json={"user": {"nothing": 1}})
    assert names(answer.json()["questions"]) == expected
    assert "answers" in refused.json()["error"]["hint"]


def talk(path, monkeypatch, given, *arguments):
    """Run the command in a terminal; return what it asks, and all that it prints."""
    from coldhash.cli import main

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    asked, given = [], iter(given)

    def answer(hint):
        asked.append(sys.stdout.getvalue().splitlines()[-1] + hint)
        return next(given)

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr("sys.argv", ["coldhash", "ask", str(path), *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    return asked, sys.stdout.getvalue()


def test_a_skipped_field_is_not_asked_again_and_the_others_are(model, tmp_path, monkeypatch):
    model.save(tmp_path / "m.coldhash")
    fields = names(model.ask({}, 9, kinds=["fields"]))
    assert len(fields) > 2
    asked, _ = talk(tmp_path / "m.coldhash", monkeypatch, [""] * 9, "--kinds", "fields", "-n", "9")
    assert [line.split("?")[0] for line in asked] == fields


def test_the_first_answer_shows_what_moved(model, tmp_path, monkeypatch):
    model.save(tmp_path / "m.coldhash")
    options = "--kinds", "items", "-n", "1", "--user", '{"nothing": 1}', "--unknown", "ignore"
    item = names(model.ask({}, kinds=["items"]))[0]
    before, after = (model.recommend(person).item_ids[0] for person in ({}, {"answers": {item: 1}}))
    assert {*before} != {*after}
    asked, shown = talk(tmp_path / "m.coldhash", monkeypatch, ["99", "1"], *options)
    assert len(asked) == 2  # again, after a rating that cannot be
    assert "new" in shown.split("?")[-1].split()


def test_one_kind_may_be_a_text_and_several_people_are_an_error(model):
    assert model.ask({}, 3, kinds="items") == model.ask({}, 3, kinds=["items"])
    with pytest.raises(DataError, match="list"):
        model.ask([{"age": 30}, {"age": 40}])


def test_unknown_items_among_answers_are_told(model):
    assert model.explain({"answers": {"nowhere": 5}}, "12")["ignored"] == ["nowhere"]
