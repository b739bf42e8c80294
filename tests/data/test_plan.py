from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coldhash import Dataset, FeaturePlan
from coldhash.data.plan import (
    Category,
    Date,
    MultiLabel,
    Number,
    Preference,
    Text,
    Vector,
    guess_column,
    guess_plan,
)
from coldhash.data.tables import infer_type
from coldhash.errors import ColumnError, SettingError, UnlikelyData
from coldhash.scale import prepare

counts = st.integers(1, 10**6)
columns = st.one_of(
    st.builds(Category, min_count=counts),
    st.builds(
        MultiLabel,
        separator=st.text(st.characters(codec="utf-8"), min_size=1, max_size=3),
        min_count=counts,
    ),
    st.builds(Number, n_knots=st.integers(2, 256)),
    st.builds(Text, min_count=counts, max_words=counts),
    st.just(Category()),
    st.just(Vector()),
)
names = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=6),
    st.sampled_from(["", "a.b", 'say "x"', "\\", "\n", "kind", "-", "users", "\U000e0001", "\x7f"]),
).filter(lambda name: name != "preference")
groups = st.dictionaries(names, st.dictionaries(names, columns, min_size=1, max_size=3), max_size=3)


@st.composite
def plans(draw):
    users, items = draw(groups), draw(groups)
    preference = draw(st.none() | st.builds(Preference, max_width=counts)) if items else None
    labels = draw(st.dictionaries(names, st.dictionaries(names, names, max_size=3), max_size=2))
    return FeaturePlan(users=users, items=items, preference=preference, labels=labels)


@pytest.mark.slow
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(plans())
def test_toml_round_trip(tmp_path, plan):
    path = tmp_path / "plan.toml"
    path.write_text(plan.to_toml(), encoding="utf-8", newline="")
    assert FeaturePlan.from_toml(path) == plan


def test_toml_is_what_a_person_would_write():
    plan = FeaturePlan(
        users={"demographics": {"gender": Category(), "age": Number(n_knots=6)}},
        items={"content": {"main genre": MultiLabel(separator=", ")}},
        preference=Preference(max_width=64),
        labels={"gender": {"F": "female"}, "age": {18: "18-24"}},
    )
    assert plan.to_toml() == (
        "[users.demographics]\n"
        'gender = "category"\n'
        'age = {kind = "number", n_knots = 6}\n'
        "\n"
        "[items.content]\n"
        '"main genre" = {kind = "multi-label", separator = ", "}\n'
        "\n"
        "[preference]\n"
        "max_width = 64\n"
        "\n"
        "[labels.gender]\n"
        'F = "female"\n'
        "\n"
        "[labels.age]\n"
        '18 = "18-24"\n'
    )


def test_a_kind_alone_is_enough():
    short = FeaturePlan(users={"who": {"age": "number"}})
    assert short == FeaturePlan(users={"who": {"age": {"kind": "number"}}})
    assert short == FeaturePlan(users={"who": {"age": Number()}})


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[users.who]\nage = "numbre"', "users.who.age"),
        ('[users.who]\nage = {kind = "number", knots = 3}', "users.who.age.number.knots"),
        ('[users.who]\nage = {kind = "number", n_knots = 1}', "users.who.age.number.n_knots"),
        ("[users.who]\nage = {n_knots = 3}", "users.who.age"),
        ("[users.who]\nage = 3", "users.who.age"),
        ('[users]\nage = "number"', "users.age"),
        ("[users.who]", "users.who"),
        ("[items.what]", "items.what"),
        ('[users.preference]\nage = "number"', "users.preference is a taken name"),
        ("[preference]", "a preference needs item columns"),
        ("[preference]\nwidth = 3", "preference.width"),
        ('[people.who]\nage = "number"', "people"),
    ],
)
def test_a_wrong_plan_names_the_place(tmp_path, text, place):
    path = tmp_path / "plan.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingError) as caught:
        FeaturePlan.from_toml(path)
    assert caught.value.message.startswith(f"{path}: FeaturePlan")
    assert place in caught.value.message
    assert "category" in caught.value.hint


@pytest.mark.parametrize("content", [b"[users", b"\xff", b"a = 1\na = 2"])
def test_what_is_not_toml_is_told(tmp_path, content):
    path = tmp_path / "plan.toml"
    path.write_bytes(content)
    with pytest.raises(SettingError, match=r"plan\.toml: not TOML"):
        FeaturePlan.from_toml(path)


def test_a_missing_plan_is_told(tmp_path):
    with pytest.raises(SettingError, match=r"gone\.toml: No such file"):
        FeaturePlan.from_toml(tmp_path / "gone.toml")


def test_a_plan_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        FeaturePlan().users = {}


def test_a_typical_table_is_guessed():
    n = 100
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(days=k) for k in range(n)]
    users = pa.table(
        {
            "gender": ["f", "m"] * (n // 2),
            "age": list(range(18, 18 + n)),
            "income": [float(k) for k in range(n)],
            "member": [True, False] * (n // 2),
            "city": [f"city {k % 40}" for k in range(n)],
            "code": [f"code-{k}" for k in range(n)],
            "constant": ["x"] * n,
            "unknown": pa.nulls(n),
            "joined": days,
            "raw": [b"x", b"y"] * (n // 2),
        }
    )
    items = pa.table(
        {
            "genres": ["drama|crime", "comedy"] * (n // 2),
            "title": [f"the {k} of them" for k in range(n)],
            "tags": [["a", "b"], []] * (n // 2),
            "embedding": [[0.5, 1.5], None] * (n // 2),
            "ragged": [[0.5], [0.5, 1.5]] * (n // 2),
            "fixed": pa.array([[0.5, 1.5]] * n, pa.list_(pa.float32(), 2)),
            "nothing": pa.array([[]] * n, pa.list_(pa.string())),
            "nested": [[["a"]]] * n,
            "record": [{"a": 1}] * n,
        }
    )
    with pytest.warns(UnlikelyData, match=r"user table, left out \(1\): 'constant'$"):
        plan = guess_plan(users, items)
    assert plan.users == {
        "profile": {
            "gender": Category(),
            "age": Number(),
            "income": Number(),
            "member": Category(),
            "city": Category(),
            "joined": Date(),
        }
    }
    assert plan.items == {
        "content": {
            "genres": MultiLabel(),
            "title": Text(),
            "tags": MultiLabel(),
            "embedding": Vector(),
            "fixed": Vector(),
        }
    }
    assert plan.preference == Preference()


def test_nothing_to_guess_from():
    assert guess_plan(pa.table({}), pa.table({})) == FeaturePlan()


MOMENTS = [datetime.datetime(2020, 1, 1, 12) + datetime.timedelta(days=k) for k in range(100)]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("joined", pa.array(MOMENTS, pa.date32()), Date()),
        ("joined", pa.array(MOMENTS, pa.timestamp("ns")), Date()),
        ("joined", pa.array(MOMENTS, pa.timestamp("us", "Europe/Oslo")), Date()),
        ("joined", [moment.date().isoformat() for moment in MOMENTS], Date()),
        ("joined", [f"{moment.isoformat()}Z" for moment in MOMENTS], Date()),
        ("joined", ["2020-01-01", "2020-02-31"] * 50, Category()),  # there is no such day
        (
            "joined",
            [f"{day}-{name}-2020" for name in ("Jan", "Apr") for day in range(1, 31)],
            Date(),
        ),
        ("joined", [f"{moment:%d.%m.%Y %H:%M}" for moment in MOMENTS], Date()),
        ("joined", [f"{moment:%Y/%m/%d}" for moment in MOMENTS], Date()),
        (
            "joined",
            [f"{moment:%m/%d/%Y}" for moment in MOMENTS],
            "dates, but '01/01/2020' is not clear: write 2024-01-31",
        ),
        ("signup_date", [int(f"{moment:%Y%m%d}") for moment in MOMENTS], Date()),
        ("created_at", [int(moment.timestamp()) for moment in MOMENTS], Date()),
        ("created_at", [int(moment.timestamp() * 1000) for moment in MOMENTS], Date()),
        ("steps", [int(moment.timestamp()) for moment in MOMENTS], Number()),
        ("runtime", list(range(60, 160)), Number()),
        ("likes", ["a, b", "b, c", "a, c", "c", "a"] * 20, MultiLabel(separator=",")),
        ("likes", ["a;b", "b;c", "a;c", "c", "a"] * 20, MultiLabel(separator=";")),
        ("kind", ["coffee, tea", "milk"] * 50, Category()),
        ("title", [f"Tale {k}, The" for k in range(100)], Text()),
        ("member", [True, False] * 50, Category()),
        ("member", ["yes", "no"] * 50, Category()),
        ("age", [str(k) for k in range(100)], Number()),
        ("code", [f"{k:03}" for k in range(100)], "an id: most values occur once"),
        ("embedding", ["[0.1, -2e-3]"] * 100, Vector()),
        ("embedding", ["[0.1  0.2]", None] * 50, Vector()),
        ("places", ["[1, 2]", "[3]"] * 50, MultiLabel()),
        ("names", ["['a', 'b']", "['c', 'd', 'a']"] * 50, Category()),
        ("store_id", [k % 40 for k in range(100)], Category()),
        ("row_id", list(range(100)), "an id: most values occur once"),
        ("constant", [7] * 100, "constant"),
        ("unknown", [None] * 100, "all values are missing"),
        ("raw", [b"x", b"y"] * 50, "values of type binary"),
        ("ragged", [[0.5], [0.5, 1.5]] * 50, "vectors of different lengths"),
        ("nothing", pa.array([[]] * 100, pa.list_(pa.string())), "all lists are empty"),
        ("wait", [datetime.timedelta(days=k) for k in range(100)], "values of type duration[us]"),
    ],
)
def test_what_a_column_becomes_or_why_it_is_left_out(name, values, expected):
    column = infer_type(pa.chunked_array([pa.array(values)]))
    assert guess_column(name, column) == expected


TABLES = {
    "ratings": {"user_id": [1, 2], "item_id": ["a", "b"], "rating": [5, 3]},
    "users": {"user_id": [1, 2], "age": [20, 30]},
}


@pytest.fixture
def forms(tmp_path):
    """The same plan in every form."""
    parts = {"users": {"who": {"age": "number"}}}
    path = tmp_path / "plan.toml"
    path.write_text(FeaturePlan(**parts).to_toml(), encoding="utf-8")
    return [FeaturePlan(**parts), parts, path, str(path)]


def test_a_plan_is_taken_in_every_form_everywhere(forms, tmp_path):
    data = Dataset.from_tables(**TABLES)
    pq.write_table(pa.table(TABLES["ratings"]), tmp_path / "r.parquet")
    for at, plan in enumerate(forms):
        assert Dataset.from_tables(**TABLES, plan=plan).plan == forms[0]
        assert data.with_plan(plan).plan == forms[0]
        out = tmp_path / f"parts-{at}"
        made = prepare(tmp_path / "r.parquet", out, TABLES["users"], plan=plan)
        assert made.plan == forms[0]


@pytest.mark.parametrize(
    ("plan", "error", "why"),
    [
        ({"users": {"who": {"size": "number"}}}, ColumnError, "needs column 'size'"),
        ({"labels": {"size": {"1": "small"}}}, ColumnError, "labels need column 'size'"),
        ({"labels": {"age": {"1": 1}}}, SettingError, "labels.age.1"),
        ({"users": {"who": {"age": "numbr"}}}, SettingError, "numbr"),
        ({"people": {"who": {"age": "number"}}}, SettingError, "people"),
        ({1: {}}, SettingError, "FeaturePlan, 1"),
        ("gone.toml", SettingError, "gone.toml: No such file"),
        (7, SettingError, "a int is not a feature plan"),
    ],
)
def test_a_wrong_plan_is_an_error_with_a_hint(tmp_path, plan, error, why):
    pq.write_table(pa.table(TABLES["ratings"]), tmp_path / "r.parquet")
    for read in (
        lambda: Dataset.from_tables(**TABLES, plan=plan),
        lambda: Dataset.from_tables(**TABLES).with_plan(plan),
        lambda: prepare(tmp_path / "r.parquet", tmp_path / "parts", TABLES["users"], plan=plan),
    ):
        with pytest.raises(error) as caught:
            read()
        assert why in caught.value.message
        assert caught.value.hint
