"""Groups of many columns: bounded in width, and still of use."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

from coldhash import MFDCF, Dataset, FeatureEncoder, FeaturePlan, fit_features
from coldhash.baselines.controls import Popularity, Ridge
from coldhash.baselines.lsh import LSH
from coldhash.baselines.shared import stack_features
from coldhash.data.plan import Category, MultiLabel, Number
from coldhash.data.tables import infer_types
from coldhash.errors import DataError, SettingError, UnlikelyData
from coldhash.features.columns import Knots
from coldhash.features.groups import WIDEST, Features, places_of

TASTES, N_ITEMS, N_USERS, N_NUMBERS = 4, 40, 1500, 400
TASTE = np.arange(N_USERS) % TASTES


def rated(users):
    """Everybody rates six items of their own taste: those of the same remainder."""
    rng = np.random.default_rng(1)
    chosen = [rng.permutation(N_ITEMS // TASTES)[:6] * TASTES + taste for taste in TASTE]
    owners = np.repeat(np.arange(N_USERS), 6)
    ratings = {
        "user_id": owners,
        "item_id": np.concatenate(chosen),
        "rating": np.full(len(owners), 5.0),
    }
    return ratings, {"user_id": np.arange(N_USERS), **users}


def hits(model, people, tastes) -> float:
    """The share of recommended items that are of the right taste; by chance a quarter."""
    found = model.recommend(people, k=5).item_ids
    right = [
        int(item) % TASTES == taste
        for row, taste in zip(found, tastes, strict=True)
        for item in row
    ]
    return float(np.mean(right))


@pytest.fixture(scope="module")
def labels():
    """20,000 labels, each of one taste; everybody has 30, two thirds of them of their own taste."""
    rng = np.random.default_rng(2)
    common = (rng.pareto(1.0, size=(N_USERS + 100, 30)) * 200).astype(int) % 5000
    tastes = np.concatenate([TASTE, np.arange(100) % TASTES])
    own = rng.random(common.shape) < 0.67
    drawn = np.where(own, tastes[:, None], rng.integers(TASTES, size=common.shape))
    likes = (common * TASTES + drawn).tolist()
    every = [list(range(start, 20_000, 40)) for start in range(40)]  # so that all labels occur
    training = likes[: N_USERS - 40] + every
    ratings, users = rated({"likes": [[f"l{x}" for x in row] for row in training]})
    plan = FeaturePlan(users={"taste": {"likes": MultiLabel(min_count=1)}})
    data = Dataset.from_tables(ratings, users, plan=plan, feedback="events")
    return data, [{"likes": [f"l{x}" for x in row]} for row in likes[N_USERS:]], tastes[N_USERS:]


@pytest.fixture(scope="module")
def numbers():
    """400 columns of several places each, all of which say a little about the taste."""
    rng = np.random.default_rng(3)
    tastes = np.concatenate([TASTE, np.arange(100) % TASTES])
    centres = rng.normal(size=(TASTES, N_NUMBERS)) * 0.3
    X = centres[tastes] + rng.normal(size=(len(tastes), N_NUMBERS))
    ratings, users = rated({f"c{j}": X[:N_USERS, j] for j in range(N_NUMBERS)})
    data = Dataset.from_tables(ratings, users, feedback="events")
    new = [{f"c{j}": row[j] for j in range(N_NUMBERS)} for row in X[N_USERS:].tolist()]
    return data, new, tastes[N_USERS:]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
@pytest.mark.parametrize(
    "settings", [MFDCF(n_bits=16, n_rounds=3), Ridge()], ids=lambda s: type(s).__name__
)
@pytest.mark.parametrize("world", ["labels", "numbers"])
def test_a_wide_group_is_bounded_and_still_predicts(world, settings, request):
    data, people, tastes = request.getfixturevalue(world)
    model = settings.fit(data)
    assert set(model.features.widths.values()) == {WIDEST}
    assert hits(model, people, tastes) > 0.5


def test_rows_of_a_folded_group_do_not_depend_on_the_others(labels):
    data, people, _ = labels
    encoder = fit_features(data)
    together = encoder.apply([*people, {}]).matrices["taste"].toarray()
    for row in (0, 7, 50):
        alone = encoder.apply(people[row]).matrices["taste"].toarray()
        np.testing.assert_array_equal(alone[0], together[row])
    assert not together[-1].any()
    facts, arrays = encoder.state()
    restored = FeatureEncoder.from_state(json.loads(json.dumps(facts)), arrays)
    np.testing.assert_array_equal(restored.apply(people).matrices["taste"].toarray(), together[:-1])


def test_rows_of_several_folded_columns_do_not_depend_on_the_others(rng):
    values = {f"c{n}": [f"{n}-{at}" for at in rng.permutation(1500)] for n in range(3)}
    ratings = {"user_id": range(1500), "item_id": [n % 5 for n in range(1500)]}
    plan = FeaturePlan(users={"all": {name: Category(min_count=1) for name in values}})
    data = Dataset.from_tables(ratings, {"user_id": range(1500), **values}, plan=plan)
    encoder = fit_features(data)
    people = [{"c0": values["c0"][n], "c2": values["c2"][n]} for n in range(40)]
    together = encoder.apply(people).matrices["all"].toarray()
    for start in range(0, 40, 4):
        few = encoder.apply(people[start : start + 4]).matrices["all"].toarray()
        np.testing.assert_array_equal(few, together[start : start + 4])


def test_what_is_missing_from_a_folded_group_is_filled_with_the_average(labels):
    data, _, _ = labels
    cities = pa.array([("north", "south")[n % 2] for n in range(N_USERS)])
    plan = FeaturePlan(users={"all": {"likes": MultiLabel(min_count=1), "city": Category()}})
    encoder = fit_features(
        Dataset(data.ratings, data.users.append_column("city", cities), data.items, plan)
    )
    group = encoder.groups["all"]
    found = encoder.apply([{"city": "north"}, {"city": "north", "likes": None}, {}]).matrices["all"]
    north, same, nobody = found.toarray()
    np.testing.assert_array_equal(north, same)
    assert not nobody.any()
    raw = np.concatenate([group.columns["likes"].mean, [1.0, 0.0]])
    places, signs = places_of(
        np.concatenate([column.mean for column in group.columns.values()]), WIDEST - 1
    )
    expected = np.bincount(places, raw * signs, WIDEST - 1)
    np.testing.assert_allclose(north[:-1], expected, atol=1e-6)
    assert north[-1] == 1


def test_inner_products_survive_the_fold():
    rng = np.random.default_rng(0)
    X = csr_array(rng.random((40, 30_000)) * (rng.random((40, 30_000)) < 0.02))
    places, signs = places_of(np.asarray(X.mean(axis=0)), WIDEST - 1)
    P = csr_array((signs, (np.arange(30_000), places)), shape=(30_000, WIDEST - 1))
    assert np.bincount(places, minlength=WIDEST - 1).min() > 0
    before, after = (X @ X.T).toarray(), (X @ P @ (X @ P).T).toarray()
    error = np.abs(after - before).mean() / np.diag(before).mean()
    assert error < 0.05


def test_many_numbers_are_encoded_as_one_by_one():
    values = [
        *np.random.default_rng(0).normal(size=200).tolist(),
        None,
        3,
        -50.0,
        1e20,
        float("nan"),
    ]
    column = Knots.fit(Number(), dict.fromkeys(values, 2), "x")
    cells = [column.cells(value) for value in values]
    expected = np.zeros((len(values), column.width), np.float32)
    for row, each in enumerate(cells):
        for place, number in each:
            expected[row, place] = number
    encoded = column.encode_sparse(values, "x")
    np.testing.assert_array_equal(encoded.toarray(), expected)
    assert (np.diff(encoded.indptr) > 0).tolist() == [bool(each) for each in cells]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_many_columns_are_read_fitted_and_stored(tmp_path):
    """10,000 columns: where the work for one grew with their number, this took minutes."""
    n = 10_000
    values = np.random.default_rng(0).integers(2, size=(n, 12)).astype(str)
    users = {"user_id": range(12)} | {f"c{j}": values[j] for j in range(n)}
    ratings = {"user_id": [*range(12)] * 2, "item_id": [0] * 12 + [1] * 12, "rating": [5, 4] * 12}
    with pytest.warns(UnlikelyData, match=r"left out \(4\): 'c390'"):
        data = Dataset.from_tables(ratings, users)
    assert set(map(str, data.users.schema.types)) == {"int64"}
    model = Ridge().fit(data)
    model.save(tmp_path / "m.coldhash")
    assert model.recommend({"c0": 1}, k=1).item_ids[0]


def test_columns_keep_their_order_and_types_when_they_are_inferred():
    table = pa.table({"id": ["1", "2"], "a": ["1", "2"], "b": ["x", None], "c": ["1.5", ""]})
    types = [str(kind) for kind in infer_types(table, "id").schema.types]
    assert types == ["string", "int64", "string", "double"]


def test_methods_that_look_at_single_columns_know_of_the_fold(labels):
    data, people, _ = labels
    assert LSH(n_tables=4).fit(data).recommend(people[:2], k=3).item_ids
    with pytest.raises(SettingError, match="too wide"):
        Popularity(cell=("likes",)).fit(data)


def test_features_that_no_memory_holds_are_refused_before_they_are_made():
    X = csr_array((1_000_000, WIDEST), dtype=np.float32)
    names = tuple(map(str, range(1000)))
    with pytest.raises(DataError, match=r"1,000,000 people x 2,048,000 would take 8,192.0 GB"):
        stack_features(Features(dict.fromkeys(names, X), {}, 1_000_000), names)
