"""What must not change a model: the number of threads, the order of users and of items."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from coldhash import MFDCF, FeaturePlan, read
from coldhash.data.plan import Category, Number
from coldhash.mfdcf.problem import uniform

pytestmark = pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
SETTINGS = MFDCF(n_bits=40, ridge=30.0, fit_weight=1.0)
PEOPLE = [
    {},
    {"age": 31},
    {"gender": "female", "occupation": "nurse"},
    {"age": 62, "city": "Elsk", "history": {"3": 5, "9": 2}},
    {"history": {"7": 4}},
]

FIT = """
import hashlib, json, sys
import numba, numpy as np
import scipy.linalg  # loads a BLAS of its own: a limit reaches only those that are loaded
from threadpoolctl import threadpool_info, threadpool_limits
from coldhash import read, split_cold_users
from coldhash.evaluate.metrics import judge
from coldhash.evaluate.protocol import make_trial, scorer
from coldhash.registry import MODELS

threads = int(sys.argv[1])
threadpool_limits(threads, "blas")
numba.set_num_threads(threads)
train, cold = split_cold_users(read("sample", n_users=800, n_items=300), seed=0)
trial = make_trial(train, cold, protocol="sampled-1000", n_given=2, seed=0)
found = {}
for method in ("mfdcf", "ridge", "mf"):
    model = MODELS[method]().fit(train, seed=1)
    said = model.recommend(cold.users, k=10)
    learned = hashlib.sha256()
    encoder = model.encoder.state()[1]
    for name in sorted(encoder):
        learned.update(np.ascontiguousarray(encoder[name]).tobytes())
    side = model.items.packed() if model.has_codes else model.items.vectors
    for array in (side, model.user_vectors, said.scores):
        learned.update(np.ascontiguousarray(array).tobytes())
    found[method] = {
        "learned": learned.hexdigest(),
        "lists": said.item_ids,
        "metrics": judge(scorer(model, "real"), trial).metrics,
    }
threads = [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
print(json.dumps({"threads": [max(threads), numba.get_num_threads()], "found": found}))
"""


def fit_with(threads):
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FIT, str(threads)],
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"NUMBA_NUM_THREADS": "2"},
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.slow
def test_no_number_of_threads_changes_anything():
    """Not a bit of what is learned, no list, no figure: with one thread and with two."""
    one, two = (fit_with(threads) for threads in (1, 2))
    assert one["threads"] == [1, 1]
    assert two["threads"] == [2, 2]
    assert one["found"] == two["found"]


@pytest.fixture(scope="module")
def world():
    """Ratings in order of time: where times are unknown, first ratings are drawn by row."""
    data = read("sample", n_users=400, n_items=150)
    times = np.random.default_rng(1).permutation(len(data.ratings))
    return data.with_ratings(replace(data.ratings, times=times))


@pytest.fixture(scope="module")
def start():
    return np.random.default_rng(0).choice([-1.0, 1.0], (150, 32)).astype(np.float32)


@pytest.fixture(scope="module")
def model(world, start):
    return SETTINGS.fit(world, item_codes=start)


def assert_alike(one, two, users=slice(None), items=slice(None)):
    """Let rounding change what it may: sums in another order are another last digit."""
    assert (one.items.rows()[items] != two.items.rows()).mean() < 1e-3
    assert one.report["ridges"] == two.report["ridges"]
    np.testing.assert_allclose(one.report["objective"], two.report["objective"], rtol=1e-5)
    scale = np.abs(one.user_vectors).max()
    np.testing.assert_allclose(one.user_vectors[users], two.user_vectors, atol=1e-4 * scale)
    vectors = [model.encode(PEOPLE).vectors for model in (one, two)]
    np.testing.assert_allclose(*vectors, atol=1e-4 * scale)
    np.testing.assert_array_equal(one.popularity[items], two.popularity)


def permuted_users(rng):
    """Permute users, those held out of the item step among themselves."""
    held = uniform(np.arange(400), 0) < 0.25
    users = np.arange(400)
    for rows in (np.flatnonzero(held), np.flatnonzero(~held)):
        users[rows] = rng.permutation(rows)
    return users


def test_the_order_of_users_does_not_matter(world, start, model, rng):
    """Up to what is drawn by row: whom the item step does not see, and of several groups a part."""
    users = permuted_users(rng)
    permuted = SETTINGS.fit(world.of_users(users), item_codes=start)
    assert list(permuted.user_ids) == [model.user_ids[row] for row in users]
    assert_alike(model, permuted, users=users)


def test_the_order_of_items_does_not_matter(world, start, model, rng):
    """The start goes along: by itself it is drawn by row."""
    items = rng.permutation(150)
    permuted = SETTINGS.fit(world.of_items(items), item_codes=start[items])
    assert list(permuted.item_ids) == [model.item_ids[row] for row in items]
    assert_alike(model, permuted, items=items)


def test_the_order_of_both_does_not_matter_to_lists(world, start, model, rng):
    users, items = permuted_users(rng), rng.permutation(150)
    permuted = SETTINGS.fit(world.of_users(users).of_items(items), item_codes=start[items])
    one, two = (each.score(each.encode(PEOPLE[1:])) for each in (model, permuted))
    np.testing.assert_allclose(one[:, items], two, atol=1e-4 * np.abs(one).max())


def test_groups_of_strangers_are_drawn_by_row(world, start, rng):
    """What is not promised: with two groups another order is another draw."""
    plan = FeaturePlan(users={"a": {"age": Number()}, "b": {"city": Category()}})
    data, users = world.with_plan(plan), permuted_users(rng)
    drawn = replace(SETTINGS, ridge=10.0)  # or features, which say little here, count for nothing
    one = drawn.fit(data, item_codes=start)
    two = drawn.fit(data.of_users(users), item_codes=start)
    assert (one.items.rows() != two.items.rows()).any()
    settled = replace(drawn, stranger_weight=0.0)  # nobody is drawn
    one = settled.fit(data, item_codes=start)
    two = settled.fit(data.of_users(users), item_codes=start)
    assert (one.items.rows() != two.items.rows()).mean() < 1e-3
