"""The steps of MFDCF: each lowers the objective, and says what the equations say."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.linalg import solve_sylvester
from scipy.sparse import csr_array, random_array
from scipy.stats import spearmanr

from coldhash import Dataset, FeaturePlan, read, split_cold_users
from coldhash.arrays.codes import signs
from coldhash.data.plan import Category, Vector
from coldhash.errors import CodeCollapse, DataError, SettingError
from coldhash.lab.printed import PrintedMFDCF, Rotation, turn
from coldhash.mfdcf import equations
from coldhash.mfdcf import problem as problem_module
from coldhash.mfdcf.items import descend
from coldhash.mfdcf.model import MFDCF
from coldhash.mfdcf.problem import Group, Level, Problem, UserBlock
from coldhash.partitions import MemoryPartitions, PerPartition

TINY = 1e-5  # of the objective: what float32 may blur


def make_problem(rng, n_bits, n_groups, stranger_weight=0.0, level=True):
    """One-hot blocks (a singular Gram), a wide group with d >= n, one narrower than the rank.

    Gives the problem and its users, in one block.
    """
    n_users, n_items = 60, 40
    S = csr_array(random_array((n_users, n_items), density=1 / 6, rng=rng, dtype=np.float32))
    S.data[:] = rng.choice([0.3, 1.0], size=S.nnz)
    towns, jobs = np.eye(3)[rng.integers(3, size=n_users)], np.eye(5)[rng.integers(5, size=n_users)]
    ones = np.ones((n_users, 1))
    matrices = {
        "one-hot": np.hstack([towns, jobs, ones]).astype(np.float32),
        "wide": rng.normal(size=(n_users, 70)).astype(np.float32),
        "narrow": np.hstack([rng.normal(size=(n_users, 1)), ones]).astype(np.float32),
    }
    names = list(matrices)[:n_groups]
    has = {name: np.ones(n_users, dtype=np.float32) for name in names}
    if n_groups > 1:
        has["wide"] = (rng.random(n_users) < 0.6).astype(np.float32)
        matrices["wide"][has["wide"] == 0] = 0
    X = {name: matrices[name] for name in names}
    masks = {name: column[:, None] for name, column in has.items()}
    trained = np.ones(n_users, bool)
    block = UserBlock(0, S, csr_array(S.T.tocsr()), X, masks, trained)
    groups = {
        name: Group(
            gram=X[name].T.astype(float) @ X[name],
            relevance=np.ones((X[name].shape[1], 1)),
            ridge=0.5,
            counts=[int(has[name].sum())],
            columns=None,
        )
        for name in names
    }
    means = S.toarray().mean(axis=0)[:, None] if level else np.zeros((n_items, 1), np.float32)
    gains = rng.uniform(0.2, 0.8, size=(n_items, 1)) if level else np.ones((n_items, 1))
    kind = Level(gains.astype(np.float32), means, np.zeros(n_items, np.uint8) if level else None)
    T = (S.toarray() - means.T) / kind.gains.T
    norms = np.sum(T.astype(float) ** 2, axis=0)
    weights = rng.uniform(0.5, 1.5, size=(n_items, 1)).astype(np.float32)
    problem = Problem(
        users=MemoryPartitions([block]),
        n_users=n_users,
        blocks=PerPartition([block]),
        target=None,
        sums=None,
        known=float(weights[:, 0] @ norms),
        item_weights=weights,
        level=kind,
        noise=T.var(axis=0)[:, None],
        groups=groups,
        groups_of_strangers=tuple(groups),
        fit_weight=2.0,
        code_weight=3.0,
        rank_weight=1.5,
        retained_rank=max(n_bits // 2, 1),
        stranger_weight=stranger_weight,
        stranger_code_share=0.4,
    )
    return problem, block


def random_state(problem, block, n_bits, rng) -> equations.FitState:
    D = signs(rng.normal(size=(40, n_bits)), np.float32)
    codes = np.packbits(rng.normal(size=(60, n_bits)) >= 0, axis=1)
    state = equations.start(problem, D)
    state.B, state.length = PerPartition([codes]), 0.8
    set_vectors(state, block, rng.normal(size=(60, n_bits)).astype(np.float32))
    state.W = {
        name: rng.normal(scale=0.3, size=(X.shape[1], n_bits)).astype(np.float32)
        for name, X in block.X.items()
    }
    state.V = {g: equations.beyond_rank(W, problem.retained_rank) for g, W in state.W.items()}
    shares = rng.uniform(0.2, 1, size=len(problem.groups))
    state.mu = dict(zip(problem.groups, shares / shares.sum(), strict=True))
    return state


def set_vectors(state, block, H):
    """Take vectors, as if they were what the ratings alone say."""
    state.H = PerPartition([H])
    TD = H.astype(float) @ state.DtD
    state.XtT = {name: block.X[name].T @ TD for name in block.X}
    state.average = H.mean(axis=0)


def with_values(state, **values):
    """Return a state that differs in some variables."""
    state = copy(state)
    for name, value in values.items():
        setattr(state, name, value)
    return state


def misfits_of(problem, state):
    block, H = problem.blocks.parts[0], state.H.parts[0]
    misfits = {}
    for name, W in state.W.items():
        apart = block.has[name] * H - block.X[name] @ W
        misfits[name] = float(np.sum(apart**2) + problem.groups[name].ridge * np.sum(W**2))
    return misfits


def loss(problem, state) -> float:
    state.misfits = misfits_of(problem, state)
    return equations.objective(problem, state)


def set_users(problem, state, rng):
    equations.update_vectors(problem, state)


def set_users_and_maps(problem, state, rng):
    """With one group and no pull to codes, the maps and then the vectors minimise over both."""
    state.B = PerPartition([None])
    equations.set_items(problem, state, state.D)
    equations.update_maps(problem, state)
    equations.update_vectors(problem, state)
    state.B = PerPartition([None])


def set_maps(problem, state, rng):
    equations.update_maps(problem, state)


def set_beyond_rank(problem, state, rng):
    rank = problem.retained_rank
    state.V = {name: equations.beyond_rank(W, rank) for name, W in state.W.items()}


def set_group_weights(problem, state, rng):
    state.mu = equations.group_weights(misfits_of(problem, state))


def set_items(problem, state, rng):
    L, G = equations.item_problem(problem, state)
    equations.set_items(problem, state, descend(state.D, L, G, 2, rng))


def set_rotation(problem, state, rng):
    Rotation("mm", state.D.shape[1], rng).update(problem, state)


STEPS = [
    set_users,
    set_maps,
    set_beyond_rank,
    set_group_weights,
    set_items,
    set_rotation,
]


@pytest.mark.parametrize("level", [True, False])
@pytest.mark.parametrize("n_groups", [1, 2, 3])
@pytest.mark.parametrize("n_bits", [8, 16])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_no_step_raises_the_objective(step, n_bits, n_groups, level):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        problem, block = make_problem(rng, n_bits, n_groups, level=level)
        state = random_state(problem, block, n_bits, rng)
        before = loss(problem, state)
        step(problem, state, rng)
        assert loss(problem, state) <= before + TINY * abs(before)


def test_vectors_and_maps_are_solved_together(rng):
    """For one group and β = γ = 0, no other pair of H and W has a lower objective."""
    problem, block = make_problem(rng, 8, 1)
    problem = replace(problem, code_weight=0.0, rank_weight=0.0)
    group = problem.groups["one-hot"]
    state = random_state(problem, block, 8, rng)
    # the ridge of the joint problem, direction by direction, is ε (1 + 1/α e)
    values = np.linalg.eigvalsh(state.DtD)
    problem = replace(problem, groups={"one-hot": replace(group, ridge=1e-9)})
    set_users_and_maps(problem, state, rng)
    best = loss(problem, state)
    assert values[0] > 0
    for _ in range(10):
        W = state.W["one-hot"] + 0.1 * rng.normal(size=state.W["one-hot"].shape)
        moved = with_values(state, W={"one-hot": W.astype(np.float32)})
        equations.update_vectors(problem, moved)
        moved.B = PerPartition([None])
        assert loss(problem, moved) > best


def test_a_step_is_exact_where_it_says_so(rng):
    """Small random moves away from the solution of an exact step only raise the objective."""
    problem, block = make_problem(rng, 8, 2)
    state = random_state(problem, block, 8, rng)
    codes, length, mu = state.B, state.length, state.mu
    equations.update_vectors(problem, state)
    state.B, state.length, state.mu, H = codes, length, mu, state.H.parts[0]
    best = loss(problem, state)
    for _ in range(10):
        moved = H + 0.3 * rng.normal(size=H.shape).astype(np.float32)
        assert loss(problem, with_values(state, H=PerPartition([moved]))) > best
    set_vectors(state, block, H)
    V = state.V
    equations.update_maps(problem, state)
    state.V = V
    best = loss(problem, state)
    for _ in range(10):
        W = {g: w + 0.3 * rng.normal(size=w.shape).astype(np.float32) for g, w in state.W.items()}
        assert loss(problem, with_values(state, W=W)) > best


def test_the_objective_is_what_the_formula_says(rng):
    problem, block = make_problem(rng, 8, 2)
    state = random_state(problem, block, 8, rng)
    level, H = problem.level, state.H.parts[0].astype(float)
    T = (block.S.toarray() - level.means.T) / level.gains.T
    B = np.unpackbits(state.B.parts[0], axis=1) * 2.0 - 1.0
    weights = problem.item_weights[:, 0]
    expected = 2.0 * np.sum(weights * (T - H @ state.D.T) ** 2)
    expected += 3.0 * np.sum((state.length * B - H) ** 2)
    for name, group in problem.groups.items():
        W = state.W[name].astype(float)
        rows = block.has[name][:, 0] > 0
        fit = np.sum((H - block.X[name] @ W)[rows] ** 2) + group.ridge * np.sum(W**2)
        expected += fit / state.mu[name]
        singular = np.linalg.svd(W, compute_uv=False)
        expected += 1.5 * np.sum(singular[problem.retained_rank :] ** 2)
    np.testing.assert_allclose(2.0 * loss(problem, state), expected, rtol=1e-5)


def test_turning_everything_changes_all_but_the_fit_to_ratings_and_codes(rng):
    """What R turns is a gauge: with D and B turned too, the objective is the same."""
    problem, block = make_problem(rng, 8, 3)
    state = random_state(problem, block, 8, rng)
    before = misfits_of(problem, state)
    T = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    turn(problem.users, state, T)
    assert misfits_of(problem, state) == pytest.approx(before, rel=1e-5)


def test_maps_solve_the_sylvester_equation(rng):
    """(14): γ V V' W + W X X' / μ = H X' / μ, with the ridge inside X X'."""
    problem, block = make_problem(rng, 8, 1)
    state = random_state(problem, block, 8, rng)
    group, mu, V = problem.groups["one-hot"], state.mu["one-hot"], state.V["one-hot"]
    X = block.X["one-hot"].astype(float)
    XtX = X.T @ X + group.ridge * np.eye(X.shape[1])
    expected = solve_sylvester(1.5 * V @ V.T, XtX / mu, (state.H.parts[0].T @ X) / mu).T
    equations.update_maps(problem, state)
    np.testing.assert_allclose(state.W["one-hot"], expected, atol=1e-4)


def test_group_weights_follow_the_misfit(rng):
    problem, block = make_problem(rng, 8, 3)
    state = random_state(problem, block, 8, rng)
    misfits = misfits_of(problem, state)
    weights = equations.group_weights(misfits)
    total = sum(value**0.5 for value in misfits.values())
    for name in weights:
        np.testing.assert_allclose(weights[name], misfits[name] ** 0.5 / total)


def test_the_item_step_for_strangers_lowers_its_own_energy(rng):
    problem, block = make_problem(rng, 8, 2, stranger_weight=0.6)
    state = random_state(problem, block, 8, rng)
    L, G = equations.item_problem(problem, state)
    new = descend(state.D, L, G, 2, rng)

    def total(D):
        return np.sum((D @ G) * D) - 2 * np.sum(D * L)

    assert total(new) <= total(state.D)


@pytest.fixture(scope="module")
def small():
    return read("sample", n_users=240, n_items=90)


FIXED = {
    "n_bits": 16,
    "level": False,
    "fit_weight": 10.0,
    "stranger_weight": 0.0,
    "ridge": 10.0,
    "n_rounds": 15,
    "tolerance": 0.0,
}
PLAIN = MFDCF(**FIXED)
LEVEL = replace(PLAIN, level=True, n_bits=24, code_weight=0.0)
PRINTED = PrintedMFDCF(**FIXED, rotation="identity", item_step="descent", cold_rotation=True)


@pytest.mark.parametrize(
    "settings",
    [
        PLAIN,
        LEVEL,
        replace(PRINTED, rotation="mm"),
        replace(PLAIN, popularity_power=0.0, target="share"),
        replace(PLAIN, rank_weight=100.0, retained_rank=2, ridge=0.1),
    ],
    ids=["plain", "level", "mm", "paper's loss", "low rank"],
)
@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_the_objective_never_rises(settings, small, monkeypatch):
    monkeypatch.setattr(problem_module, "HELD_SHARES", (0.0, 0.0))  # the item step sees everybody
    objective = settings.fit(small).report["objective"]
    assert len(objective) == 15
    for before, after in pairwise(objective):
        assert after <= before * (1 + TINY)
    assert objective[-1] < 0.9 * objective[0]


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_all_rotations_find_about_the_same_optimum(small):
    found = {
        name: replace(PRINTED, rotation=name).fit(small).report["objective"][-1]
        for name in ("identity", "mm")
    }
    np.testing.assert_allclose(found["mm"], found["identity"], rtol=0.03)


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_with_no_printed_step_it_is_the_method(small):
    one, two = PLAIN.fit(small), PRINTED.fit(small)
    np.testing.assert_array_equal(one.items.packed(), two.items.packed())
    assert one.report["objective"] == two.report["objective"]


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
@pytest.mark.parametrize("rotation", ["identity", "mm", "alm"])
@pytest.mark.parametrize("item_step", ["descent", "pinv-sign"])
def test_every_printed_step_runs(small, rotation, item_step):
    settings = replace(PRINTED, rotation=rotation, item_step=item_step, n_rounds=3)
    assert np.isfinite(settings.fit(small).report["objective"]).all()


def test_without_the_rotation_strangers_codes_are_off(small):
    """(28) as printed drops R: its codes agree with the right ones no better than chance."""
    rotated = replace(PRINTED, rotation="mm", n_rounds=6).fit(small)
    printed = replace(PRINTED, rotation="mm", n_rounds=6, cold_rotation=False).fit(small)
    right = signs(rotated.encode(small.users).vectors)
    wrong = signs(printed.encode(small.users).vectors)
    assert (right == wrong).mean() < 0.8


def assert_close(one, two):
    """Compare sums in single precision: where terms cancel, only their size bounds the rounding."""
    np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6 * np.abs(two).max())


def test_a_training_users_features_give_the_code_of_the_map(small):
    model = MFDCF(n_bits=32).fit(small)
    X = model.features.apply(small.users).matrices["demographics"]
    expected = X @ model.encoder.maps["demographics"]
    has = model.features.apply(small.users).has["demographics"]
    assert_close(model.encode(small.users).vectors[has], expected[has])


def test_training_users_keep_vectors_that_their_ratings_explain(small):
    model = MFDCF(n_bits=32).fit(small)
    again = model.encode(small.users, small.ratings.matrix).vectors
    before, after = (model.items.scores(each) for each in (model.user_vectors, again))
    before, after = before - before.mean(axis=0), after - after.mean(axis=0)
    own, other = (np.corrcoef(before.ravel(), each.ravel())[0, 1] for each in (after, after[::-1]))
    assert own > 0.4 > abs(other)


def test_a_history_moves_people_towards_what_they_like(small):
    """After rating items of one half of the checkerboard, that half comes first."""
    import worlds

    data = worlds.checkerboard(60, 40)
    model = MFDCF(n_bits=24).fit(data)
    for own in (0, 1):
        history = {str(item): 5 for item in range(own, 20, 2)}
        encoded = model.encode({"history": history})
        assert not encoded.fallback[0]
        scores = model.score(encoded)[0]
        assert scores[own::2].mean() > scores[1 - own :: 2].mean()


def test_an_unknown_item_in_a_history_is_reported(small):
    model = MFDCF(n_bits=32).fit(small)
    encoded = model.encode([{"age": 30}, {"age": 30, "history": {"no such item": 3}}])
    assert encoded.ignored == [(1, "no such item")]
    assert_close(encoded.vectors[0], encoded.vectors[1])
    with pytest.raises(DataError, match="from 1 to 5"):
        model.encode({"history": {"1": 9}})


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_no_cold_rating_reaches_the_model(small):
    """Erasing the cold users' ratings from the data changes nothing that is learned."""
    train, cold = split_cold_users(small, seed=0)
    users = set(cold.ratings.users)
    keep = np.array([user not in users for user in small.ratings.users])
    erased = small.with_ratings(small.ratings.where(np.repeat(keep, small.ratings.per_user)))
    clean, _ = split_cold_users(erased, seed=0)
    one, two = MFDCF(n_bits=24).fit(train), MFDCF(n_bits=24).fit(clean)
    np.testing.assert_array_equal(one.items.packed(), two.items.packed())
    np.testing.assert_array_equal(one.popularity, two.popularity)
    np.testing.assert_array_equal(one.encode(cold.users).vectors, two.encode(cold.users).vectors)


def tiny(**columns) -> Dataset:
    ratings = {"user_id": columns.pop("u"), "item_id": columns.pop("i"), "rating": columns.pop("r")}
    plan = columns.pop("plan", None)
    users = {"user_id": sorted(set(ratings["user_id"])), **columns}
    return Dataset.from_tables(ratings, users, plan=plan)


TOWN = FeaturePlan(users={"who": {"town": Category(min_count=1)}})


@pytest.mark.parametrize(
    "data",
    [
        tiny(u=[1], i=[1], r=[5], town=["x"], plan=TOWN),
        tiny(u=[1, 2, 3], i=[1, 1, 1], r=[1, 5, 3], town=["x", "y", "x"], plan=TOWN),
        tiny(u=[1, 1, 1], i=[1, 2, 3], r=[1, 5, 3], town=["x"], plan=TOWN),
        tiny(u=[1, 2, 3], i=[1, 2, 3], r=[4, 4, 4], town=["x", "y", "z"], plan=TOWN),
        tiny(u=[1, 2], i=[1, 2], r=[0, 0], town=["x", "y"], plan=TOWN),
        tiny(u=[1, 2], i=[1, 2], r=[1, 5], town=["x", None], plan=TOWN),
        tiny(
            u=[1, 2, 3],
            i=[1, 2, 3],
            r=[1, 5, 3],
            v=[[0.0] * 9, [1.0] * 9, None],
            plan=FeaturePlan(users={"v": {"v": Vector()}}),
        ),
    ],
    ids=["one of each", "one item", "one user", "all equal", "all zero", "missing", "d > n"],
)
@pytest.mark.parametrize(("level", "n_bits"), [(False, 1), (False, 7), (True, 9), (True, 64)])
def test_odd_data_works(data, level, n_bits):
    model = MFDCF(n_bits=n_bits, level=level).fit(data)
    rated = {"history": {"1": model.scale[1]}}
    people = [{"town": "x"}, {"v": [0.5] * 9}, {}, rated]
    scores = model.score(model.encode(people, unknown="ignore"))
    assert np.isfinite(scores).all()


def test_data_that_says_nothing_is_an_error():
    data = tiny(u=[1, 2], i=[1, 2], r=[1, 5], town=["x", "y"], plan=TOWN)
    nothing = data.with_ratings(data.ratings.where(np.zeros(2, dtype=bool)))
    with pytest.raises(DataError, match="no ratings"):
        MFDCF().fit(nothing)
    unknown = tiny(u=[1, 2], i=[1, 2], r=[1, 5], town=["", ""], plan=TOWN)
    with pytest.raises(DataError, match="feature"):
        MFDCF(level=False).fit(unknown)
    assert MFDCF().fit(unknown).recommend({}, k=1).fallback[0]  # beside a level, none are needed
    spoilt = FeaturePlan(users={"v": {"v": Vector()}})
    with pytest.raises(DataError, match=r"column 'v'.*NaN"):
        MFDCF().fit(tiny(u=[1, 2], i=[1, 2], r=[1, 5], v=[[1.0], [float("nan")]], plan=spoilt))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_bits", 0),
        ("n_bits", 1025),
        ("fit_weight", 0.0),
        ("ridge", 0.0),
        ("stranger_weight", 1.0),
        ("retained_rank", 0),
        ("retained_rank", 57),
        ("n_rounds", 0),
    ],
)
def test_impossible_settings_are_named(name, value):
    with pytest.raises(SettingError, match=f"{name}={value!r}.*hint"):
        MFDCF(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("rotation", "sideways"), ("item_step", "guess")])
def test_impossible_printed_settings_are_named(name, value):
    with pytest.raises(SettingError, match=f"{name}={value!r}.*hint"):
        PrintedMFDCF(**{name: value})


def test_collapsed_codes_are_warned_of(sample):
    with pytest.warns(CodeCollapse, match=r"score='real'"):
        model = MFDCF(n_bits=2, level=False).fit(sample)
    assert model.report["warning"].endswith("use more bits")


def test_the_report_says_what_a_reader_wants(small):
    report = MFDCF(n_bits=32).fit(small).report
    assert sum(report["group_weights"].values()) == pytest.approx(1)
    assert set(report["group_weights"]) == {"demographics"}
    for codes in ("user_codes", "item_codes", "stranger_codes"):
        assert 1 <= report[codes]["distinct"] <= report[codes]["of"]
        assert 0 <= report[codes]["mean_imbalance"] <= 1
        assert 0 <= report[codes]["mean_correlation"] <= 1
    assert sum(report["seconds"].values()) > 0


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
@pytest.mark.filterwarnings("ignore::coldhash.errors.UnlikelyFavourites")
def test_planted_codes_are_found():
    """Where likings are planted by codes, items are as alike as their planted codes are."""
    rng = np.random.default_rng(0)
    users, items = (signs(rng.normal(size=(n, 8))).astype(int) for n in (600, 150))
    liking = users @ items.T  # -8 to 8
    rows, columns = np.nonzero(liking >= 2)
    data = Dataset.from_tables(
        {"user_id": rows, "item_id": columns, "rating": np.full(len(rows), 5.0)},
        {"user_id": np.arange(600), "taste": users.astype(float).tolist()},
        {"item_id": np.arange(150), "name": [str(n) for n in range(150)]},
        plan=FeaturePlan(users={"taste": {"taste": Vector()}}),
        scale=(0.0, 5.0),
    )
    # the level is what all likings share; the best of a few starts
    settings = MFDCF(n_bits=8 + 8, popularity_power=0.0, ridge=3.0)  # one, to compare (9) by
    models = [settings.fit(data, seed=seed) for seed in range(5)]
    model = min(models, key=lambda model: model.report["objective"][-1])
    found = model.items.rows(model.item_ids.rows(np.arange(150))).astype(int)
    pairs = np.triu_indices(150, 1)
    alike, planted = (found @ found.T)[pairs], (items @ items.T)[pairs]
    assert spearmanr(alike, planted).statistic >= 0.9


def test_no_user_table_at_all():
    """Items described, users not: people are known by what they rate."""
    data = read("sample", n_users=120, n_items=60)
    items = data.items.append_column("item_id", data.ratings.items.values)
    owners = np.repeat(np.arange(120), data.ratings.per_user)
    bare = Dataset.from_tables(
        {
            "user_id": [data.ratings.users[row] for row in owners],
            "item_id": [data.ratings.items[row] for row in data.ratings.matrix.indices],
            "rating": data.ratings.matrix.data,
        },
        items=items,
    )
    model = MFDCF(n_bits=32).fit(bare)
    assert len(model.recommend({"history": {"1": 5, "2": 4}}, k=5).item_ids[0]) == 5
    assert model.encode({}).fallback[0]


def test_columns_of_noise_cost_little(rng):
    """Relevance: what one column says is not lost among many that say nothing."""
    X = np.hstack([rng.normal(size=(600, 41)), np.ones((600, 1))]).astype(np.float32)
    Y = X[:, :1] @ rng.normal(size=(1, 16)) + 2 * rng.normal(size=(600, 16))
    found = equations.relevance(X, Y.astype(np.float32), np.arange(42))[:, 0]
    assert found[0] > 3 * found[1:-1].max()
