from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys

import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.main import get_command

import coldhash
from coldhash.cli.inputs import DataOptions, app
from commands import coldhash_command, coldhash_in_process

pytestmark = pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")


def test_version():
    run = coldhash_command("--version")
    assert (run.returncode, run.stdout, run.stderr) == (0, f"{coldhash.__version__}\n", "")


@pytest.mark.slow
def test_describe_ml_1m(data_folder):
    run = coldhash_in_process(
        "describe", "--dataset", "ml-1m", "--data", data_folder / "ml-1m.zip", "--json"
    )
    facts = json.loads(run.stdout)
    counts = ("users", "items", "items_described", "items_rated", "ratings", "sparsity")
    assert [facts[name] for name in counts] == [6040, 3952, 3883, 3706, 1_000_209, 95.81]
    assert facts["groups"]["demographics"] == {"width": 2 + 7 + 21 + 1, "users": 6040}
    ages, occupations = (facts["user_columns"][name]["values"] for name in ("age", "occupation"))
    assert (ages["under 18"], ages["25-34"], len(ages)) == (222, 2096, 7)
    assert (occupations["programmer"], len(occupations)) == (388, 21)


def test_labels_are_shown_and_codes_are_kept(tmp_path):
    rows = [f"{u},{i},{1 + (u + i) % 5}\n" for u in range(20) for i in range(10)]
    (tmp_path / "r.csv").write_text("user_id,item_id,rating\n" + "".join(rows), encoding="utf-8")
    (tmp_path / "i.csv").write_text(
        "item_id,title,kind\n" + "".join(f"{i},T{i},{i % 2}\n" for i in range(10)), encoding="utf-8"
    )
    plan = '[users.who]\nage = "number"\n\n[items.content]\nkind = "category"\n\n'
    plan += '[labels.kind]\n0 = "new"\n1 = "old"\n'
    (tmp_path / "plan.toml").write_text(plan, encoding="utf-8")
    users = "user_id,age\n" + "".join(f"{u},{20 + u}\n" for u in range(20))
    (tmp_path / "u.csv").write_text(users, encoding="utf-8")
    data = ("--ratings", "r.csv", "--users", "u.csv", "--items", "i.csv", "--plan", "plan.toml")
    described = coldhash_in_process("describe", *data, cwd=tmp_path)
    assert "new: 5" in described.stdout
    assert plan.split("\n")[-2] in described.stdout
    fitted = coldhash_in_process(
        "fit", *data, "--model", "popularity", "--out", "m", "--judge", cwd=tmp_path
    )
    assert fitted.returncode == 0, fitted.stderr
    ask = ("recommend", "m", "--user", "{}", "--fields", "kind", "-k", "1")
    shown = coldhash_in_process(*ask, cwd=tmp_path).stdout.split()[-1]
    kept = json.loads(coldhash_in_process(*ask, "--json", cwd=tmp_path).stdout)["items"][0]["kind"]
    assert {"0": "new", "1": "old"}[str(kept)] == shown
    (row,) = json.loads(coldhash_in_process("inspect", "m", "--json", cwd=tmp_path).stdout)[
        "report"
    ]["judged"]["rows"]
    assert (row["given"], row["verdict"]) == (0, "tied")
    assert row["model"] == row["popularity"]


def test_describe_in_words():
    run = coldhash_in_process("describe", "--dataset", "sample")
    ratings = f"ratings: {coldhash.read('sample').n_ratings:,}"
    for line in ("users: 2,000", "items: 1,000", ratings):
        assert f"\n{line}\n" in run.stdout
    assert '[users.demographics]\n  age = "number"' in run.stdout


@pytest.mark.slow
def test_describe_own_tables(tmp_path):
    (tmp_path / "r.csv").write_text("customer,item,rating\n1,a,5\n2,a,3\n2,b,4\n", encoding="utf-8")
    (tmp_path / "u.csv").write_text("customer,town\n1,Oslo\n2,Rome\n", encoding="utf-8")
    run = coldhash_in_process(
        "describe", "--ratings", "r.csv", "--users", "u.csv", "--column", "user_id=customer",
        "--json", cwd=tmp_path,
    )  # fmt: skip
    facts = json.loads(run.stdout)
    assert (facts["users"], facts["items"], facts["ratings"]) == (2, 2, 3)
    town = {"type": "string", "missing": 0, "distinct": 2, "becomes": "category"}
    assert facts["user_columns"]["town"] == town


def test_ratings_need_no_header_line(tmp_path):
    (tmp_path / "u.data").write_text("1\ta\t5\t10\n2\ta\t3\t20\n2\tb\t4\t30\n", encoding="utf-8")
    run = coldhash_in_process("describe", "--ratings", "u.data", cwd=tmp_path)
    assert run.returncode == 2
    assert "(or --names A,B,...)" in run.stderr
    names = ("--names", "user_id,item_id,rating,timestamp")
    run = coldhash_in_process("describe", "--ratings", "u.data", *names, "--json", cwd=tmp_path)
    facts = json.loads(run.stdout)
    assert (facts["users"], facts["items"], facts["ratings"], facts["times"]) == (2, 2, 3, True)


@pytest.mark.filterwarnings("default")
def test_feedback_and_favourites_can_be_set(tmp_path):
    rows = "".join(f"{n},{n % 7},{1 + (n % 50 == 0)}\n" for n in range(200))
    (tmp_path / "r.csv").write_text("user_id,item_id,rating\n" + rows, encoding="utf-8")

    def describe(*options):
        command = ("describe", "--ratings", "r.csv", "--json", *options)
        run = coldhash_in_process(*command, cwd=tmp_path)
        facts = json.loads(run.stdout)
        return [facts[name] for name in ("feedback", "favourites")], run.stderr

    assert describe() == (["ratings", 4], "")
    found, told = describe("--favourite", "3")
    assert found == ["ratings", 0]
    assert told.startswith("warning: 0 of 200 ratings")
    assert told.count("\n") == 1
    assert describe("--feedback", "counts") == (["counts", 200], "")
    assert describe("--favourite", "user-mean")[0] == ["ratings", 0]
    run = coldhash_in_process(
        "prepare", "--ratings", "r.csv", "--out", "parts", "--feedback", "stars", cwd=tmp_path
    )
    assert run.returncode == 2
    assert "feedback='stars'" in run.stderr


def test_types_of_events_can_be_weighed(tmp_path):
    rows = "user_id,item_id,event_type\n1,a,view\n1,a,purchase\n2,a,view\n2,b,view\n"
    (tmp_path / "e.csv").write_text(rows, encoding="utf-8")
    weights = ("--event-weight", "view=1", "--event-weight", "purchase=5")
    run = coldhash_in_process("describe", "--ratings", "e.csv", *weights, "--json", cwd=tmp_path)
    facts = json.loads(run.stdout)
    assert (facts["feedback"], facts["ratings"], facts["scale"]) == ("counts", 3, [1.0, 6.0])
    for wrong, message in (("view=x", "--event-weight"), ("view=1", "purchase")):
        run = coldhash_in_process(
            "describe", "--ratings", "e.csv", "--event-weight", wrong, cwd=tmp_path
        )
        assert run.returncode == 2
        assert message in run.stderr


def test_known_data_take_a_rule(tmp_path):
    command = ("describe", "--dataset", "sample", "--favourite")
    assert "4 and more" in coldhash_in_process(*command, "4").stdout
    run = coldhash_in_process(*command, "best")
    assert (run.returncode, run.stdout) == (2, "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_stdout_takes_any_character(tmp_path, encoding):
    (tmp_path / "r.csv").write_text("user_id,item_id,rating\n1,a,5\n2,a,3\n", encoding="utf-8")
    (tmp_path / "u.csv").write_text(
        "user_id,Stra\u00dfe,\u57ce\U0001f600\n1,x,y\n", encoding="utf-8"
    )
    run = coldhash_in_process(
        "describe", "--ratings", "r.csv", "--users", "u.csv", "--json",
        cwd=tmp_path, encoding=encoding,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    columns = json.loads(run.stdout)["user_columns"]
    assert {"Stra\u00dfe", "\u57ce\U0001f600"} <= set(columns)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe"], "either --dataset NAME or --ratings FILE"),
        (["describe", "--dataset", "nothing"], "no data set is called 'nothing'"),
        (["describe", "--ratings", "gone.csv"], "gone.csv"),
        (["describe", "--ratings", "bad.csv"], "bad.csv, line 3"),
        (["describe", "--ratings", "bad.csv", "--column", "rating"], "ROLE=NAME"),
        (["describe", "--dataset", "sample", "--plan", "plan.toml"], "users.who.age"),
        (["fetch", "nothing", "--to", "."], "name='nothing'"),
        (["fetch", "ml-1m", "--to", ".", "--from", "bad.csv"], "bad.csv"),
        (["describe", "--no-such-option"], "No such option"),
        (
            ["fit", "--dataset", "sample", "--out", "m", "--set", "n_rounds=x"],
            "n_rounds='x'",
        ),
        (["fit", "--dataset", "sample", "--out", "m", "--set", "fit_weight=1e999"], "finite"),
    ],
)
def test_a_mistake_is_reported_in_one_line_with_exit_code_2(tmp_path, arguments, message):
    (tmp_path / "bad.csv").write_text("user,item,rating\n1,a,5\n1,a\n", encoding="utf-8")
    (tmp_path / "plan.toml").write_text('[users.who]\nage = "shoe"\n', encoding="utf-8")
    run = coldhash_in_process(*arguments, cwd=tmp_path)
    assert run.returncode == 2
    assert run.stdout == ""
    assert message in run.stderr
    assert "Traceback" not in run.stderr


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    run = coldhash_in_process(
        "fit", "--dataset", "sample", "--bits", 32, "--set", "n_rounds=3", "--out",
        folder / "m.coldhash", "--json",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    facts = json.loads(run.stdout)
    assert facts["settings"]["n_bits"] == 32
    assert facts["settings"]["n_rounds"] == 3
    assert facts["items"] == 1000
    return folder / "m.coldhash"


@pytest.mark.slow
def test_a_person_nested_without_end_is_a_mistake_too(model_file):
    run = coldhash_in_process("recommend", model_file, "--user", "[" * 20_000)
    assert (run.returncode, run.stdout) == (2, "")
    assert "not a JSON object" in run.stderr


@pytest.mark.slow
def test_answers_go_to_a_file_of_any_name_or_not_at_all(model_file, tmp_path):
    ask = ["recommend", model_file, "--user", "{}", "--out"]
    out = tmp_path / os.fsdecode(b"\xff\xef.csv")
    run = subprocess.run(
        [sys.executable, "-m", "coldhash", *ask, out],
        capture_output=True, timeout=120, env=os.environ | {"PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (0, os.fsencode(out) + b"\n"), run.stderr
    assert out.stat().st_size > 100
    out = tmp_path / "s3:x.parquet"
    run = coldhash_in_process(*ask, out)
    assert (run.returncode, run.stdout) == (0, f"{out}\n"), run.stderr
    assert out.stat().st_size > 100
    run = coldhash_in_process(*ask, tmp_path / "nowhere" / "x.csv")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("error: cannot write")
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.slow
def test_recommend_to_a_stranger(model_file):
    person = json.dumps({"age": 40, "gender": "male", "history": {"7": 5}})
    run = coldhash_in_process("recommend", model_file, "--user", person, "-k", 4, "--json")
    answer = json.loads(run.stdout)
    assert [row["rank"] for row in answer["items"]] == [1, 2, 3, 4]
    assert answer["fallback"] == [False]
    assert all(row["title"] and row["item_id"] != "7" for row in answer["items"])
    first = answer["items"][0]["item_id"]
    run = coldhash_in_process(
        "recommend", model_file, "--user", person, "-k", 4, "--json", "--exclude", first
    )
    assert first not in [row["item_id"] for row in json.loads(run.stdout)["items"]]
    run = coldhash_in_process("recommend", model_file, "--user", "{}", "--json")
    nobody = json.loads(run.stdout)
    assert nobody["fallback"] == [True]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_recommend_to_a_table(model_file, tmp_path, ending):
    (tmp_path / "new.csv").write_text(
        "user_id,age,gender\nann,30,female\nbob,,\n", encoding="utf-8"
    )
    out = tmp_path / f"recs.{ending}"
    run = coldhash_in_process(
        "recommend", model_file, "--users", tmp_path / "new.csv", "-k", 3, "--out", out
    )
    assert run.stdout == f"{out}\n"
    read = pyarrow.csv.read_csv if ending == "csv" else pyarrow.parquet.read_table
    table = read(out)
    assert table.column("user_id").to_pylist() == ["ann"] * 3 + ["bob"] * 3
    assert table.column("rank").to_pylist() == [1, 2, 3] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.csv", out.name]


@pytest.mark.slow
@pytest.mark.filterwarnings("default::coldhash.errors.UnknownColumns")
def test_fields_that_a_model_does_not_know(model_file, tmp_path):
    ask = ("recommend", model_file, "--user", '{"gendr": "female", "age": 30}')
    run = coldhash_in_process(*ask)
    assert (run.returncode, run.stdout) == (2, "")
    assert "did you mean gender?" in run.stderr
    assert coldhash_in_process(*ask, "--unknown", "ignore").returncode == 0
    (tmp_path / "new.csv").write_text("user_id,age,gendr\n007,30,female\n", encoding="utf-8")
    run = coldhash_in_process("recommend", model_file, "--users", tmp_path / "new.csv", "-k", 1)
    assert run.stdout.startswith("007\t")
    assert run.stderr.startswith("warning: the model does not know 'gendr' (did you mean gender?)")
    assert run.stderr.count("\n") == 1


@pytest.mark.slow
def test_fields_of_items_come_along(model_file, tmp_path):
    ask = ("recommend", model_file, "--user", '{"age": 30}', "-k", 2, "--fields", "genres,year")
    for line in coldhash_in_process(*ask).stdout.splitlines():
        *_, title, genres, year = line.split("\t")
        assert title
        assert genres
        assert float(year)
    rows = json.loads(coldhash_in_process(*ask, "--json").stdout)["items"]
    assert all({"title", "genres", "year"} <= row.keys() for row in rows)
    out = tmp_path / "r.parquet"
    coldhash_in_process(*ask, "--out", out)
    assert pyarrow.parquet.read_table(out).column_names[-3:] == ["title", "genres", "year"]


@pytest.mark.slow
def test_a_note_tells_who_got_popular_items(model_file):
    person = '{"user_id": "ann", "history": {"nothing": 5}}'
    run = coldhash_in_process("recommend", model_file, "--user", person, "-k", 1)
    popular, ignored = run.stderr.splitlines()
    assert popular == "note: the popular items, as nothing usable is known: user ann"
    assert ignored == "note: not known to the model, so ignored: item nothing"


@pytest.mark.slow
def test_recommend_to_everybody(model_file, tmp_path):
    out = tmp_path / "all.parquet"
    coldhash_in_process("recommend", model_file, "--all", "-k", 2, "--out", out)
    table = pyarrow.parquet.read_table(out)
    assert table.num_rows == 2 * 2000
    assert len(set(table.column("user_id").to_pylist())) == 2000


@pytest.mark.slow
def test_what_is_printed_for_everybody_is_one_document(model_file):
    run = coldhash_in_process("recommend", model_file, "--all", "-k", 1, "--json")
    rows = json.loads(run.stdout)["items"]
    assert len({row["user_id"] for row in rows}) == len(rows) == 2000


@pytest.mark.slow
def test_rated_items_are_left_out_unless_asked_for(model_file):
    person = json.dumps({"age": 40, "history": {"7": 5}})
    asked = ["recommend", model_file, "--user", person, "-k", 1000]
    ids = [
        {line.split("\t")[2] for line in coldhash_in_process(*asked, option).stdout.splitlines()}
        for option in ("--exclude-seen", "--no-exclude-seen")
    ]
    assert ids[1] - ids[0] == {"7"}


@pytest.mark.slow
def test_similar_and_inspect(model_file):
    run = coldhash_in_process("similar", model_file, "--item", "7", "-k", 3, "--json")
    near = json.loads(run.stdout)["items"]
    assert len(near) == 3
    assert "7" not in [row["item_id"] for row in near]
    assert near == sorted(near, key=lambda row: row["distance"])
    facts = json.loads(coldhash_in_process("inspect", model_file, "--json").stdout)
    assert (facts["method"], facts["items"], facts["users"]) == ("mfdcf", 1000, 2000)
    assert facts["bytes_per_item"] == pytest.approx(4, abs=0.2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--user", "{not json"], "JSON object"),
        (["--user", "[1]"], "JSON object"),
        (["--user", '{"age": "old"}'], "column 'age'"),
        (["--user", '{"history": {"7": 99}}'], "from 1 to 5"),
        (["--user-id", "nobody of that name"], "nobody of that name"),
        (["--user", "{}", "-k", "0"], "k=0"),
        (["--user", "{}", "--score", "best"], "score='best'"),
        (["--user", "{}", "--exclude", "no such item"], "no such item"),
        (["--user", "{}", "--out", "recs.docx"], ".parquet"),
        ([], "one of --user, --users, --user-id, --all"),
    ],
)
def test_mistakes_in_asking(model_file, tmp_path, arguments, message):
    run = coldhash_in_process("recommend", model_file, *arguments, cwd=tmp_path)
    assert run.returncode == 2
    assert message in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.slow
def test_explain(model_file):
    person = json.dumps({"age": 40, "history": {"7": 5}})
    ask = ("explain", model_file, "--user", person, "--item", "12")
    why = json.loads(coldhash_in_process(*ask, "--json").stdout)
    assert why["item_id"] == "12"
    assert why["title"]
    assert sum(why["contributions"].values()) == pytest.approx(why["score"])
    lines = coldhash_in_process(*ask).stdout.splitlines()
    assert f"title: {why['title']}" in lines
    assert "contributions:" in lines
    run = coldhash_in_process("explain", model_file, "--user", '{"agee": 3}', "--item", "12")
    assert run.stderr.endswith("did you mean age? (or --unknown ignore)\n")


def test_sql_ranks_an_export_and_items_are_filtered(model_file, tmp_path):
    import duckdb

    person, database = '{"age": 30}', tmp_path / "items.duckdb"
    coldhash_in_process("export", model_file, "--to", "duckdb", "--out", database)
    sql = coldhash_in_process(
        "query-sql", model_file, "--to", "duckdb", "--user", person, "--planes", "8",
        "--condition", "year >= 2000", "-k", "4",
    )  # fmt: skip
    with duckdb.connect(str(database), read_only=True) as connection:
        found = [item_id for item_id, _ in connection.execute(sql.stdout).fetchall()]
    ask = [
        "recommend",
        model_file,
        "--user",
        person,
        "-k",
        "4",
        "--fields",
        "year,genres",
        "--json",
    ]
    run = coldhash_in_process(*ask, "--where", 'year={"min": 2000}')
    rows = json.loads(run.stdout)["items"]
    assert [row["item_id"] for row in rows] == found
    assert all(row["year"] >= 2000 for row in rows)
    run = coldhash_in_process(*ask, "--where", "genres=drama", "--where", "genres=music")
    rows = json.loads(run.stdout)["items"]
    assert all({"drama", "music"} & set(row["genres"].split("|")) for row in rows)
    run = coldhash_in_process(*ask, "--where", "genre=drama")
    assert (run.returncode, "did you mean genres?" in run.stderr) == (2, True)


FIT, ASK = ["fit", "--dataset", "sample"], ["recommend", "no model", "--user", "{}"]
EXPORT = ["export", "no model", "--to", "parquet"]


@pytest.mark.parametrize(
    ("command", "out"),
    [
        *((command, "nowhere/m") for command in (FIT, ASK, EXPORT)),
        *((command, "folder") for command in (FIT, ASK, EXPORT)),
    ],
)
def test_where_to_write_is_checked_first(tmp_path, monkeypatch, command, out):
    (tmp_path / "folder.csv").mkdir()
    monkeypatch.setattr("coldhash.read", lambda *_, **__: pytest.fail("reads the data"))
    monkeypatch.setattr("coldhash.load", lambda *_, **__: pytest.fail("reads the model"))
    run = coldhash_in_process(*command, "--out", f"{out}.csv", cwd=tmp_path)
    assert run.returncode == 2
    assert "cannot write" in run.stderr or "a folder; hint: name a file" in run.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "folder.csv"]


def test_hints_name_options(tmp_path):
    (tmp_path / "twice.csv").write_text("user,item,rating\n1,a,5\n1,a,4\n", encoding="utf-8")
    run = coldhash_in_process("describe", "--ratings", "twice.csv", cwd=tmp_path)
    assert "choose a rule: --duplicates last" in run.stderr
    (tmp_path / "odd.csv").write_text("buyer,item,rating\n1,a,5\n", encoding="utf-8")
    run = coldhash_in_process("describe", "--ratings", "odd.csv", cwd=tmp_path)
    assert "hint: --column user_id=NAME" in run.stderr


def options_of(command):
    return {option for each in get_command(app).commands[command].params for option in each.opts}


def test_commands_that_read_data_take_the_same_options():
    names = (field.name.replace("_", "-") for field in dataclasses.fields(DataOptions))
    fields = {f"--{name}" for name in names}
    for command in ("describe", "fit", "evaluate"):
        assert fields <= options_of(command)
    not_there = {"--dataset", "--data", "--encoding", "--names"}
    assert fields & options_of("prepare") == fields - not_there
    assert not any("source" in option for option in options_of("fit"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "magic"], "model='magic'"),
        (["--bits", "0"], "n_bits=0"),
        (["--set", "colour=blue"], "no setting is called 'colour'"),
        (["--set", "n_rounds"], "NAME=VALUE"),
    ],
)
def test_mistakes_in_fitting(tmp_path, arguments, message):
    run = coldhash_in_process("fit", "--dataset", "sample", "--out", tmp_path / "m", *arguments)
    assert run.returncode == 2
    assert message in run.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_broken_model_file_is_refused(tmp_path):
    (tmp_path / "m.coldhash").write_bytes(b"nothing of the kind" * 10)
    run = coldhash_in_process("inspect", tmp_path / "m.coldhash")
    assert run.returncode == 2
    assert "m.coldhash" in run.stderr
