from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coldhash import FeaturePlan
from coldhash.data.plan import Category, MultiLabel, Number, Preference, Text, Vector, guess_plan
from coldhash.errors import SettingError

counts = st.integers(1, 10**6)
columns = st.one_of(
    st.builds(Category, min_count=counts),
    st.builds(
        MultiLabel,
        separator=st.text(st.characters(codec="utf-8"), min_size=1, max_size=3),
        min_count=counts,
    ),
    st.builds(Number, method=st.sampled_from(["buckets", "standard"]), n_knots=st.integers(2, 256)),
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
    return FeaturePlan(users=users, items=items, preference=preference)


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
        ("[users.who]", "users.who has no columns"),
        ("[items.what]", "items.what has no columns"),
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
    assert caught.value.message.startswith(f"{path}: feature plan")
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
    plan = guess_plan(users, items)
    assert plan.users == {
        "profile": {
            "gender": Category(),
            "age": Number(),
            "income": Number(),
            "member": Category(),
            "city": Category(),
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
