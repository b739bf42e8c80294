from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array
from threadpoolctl import threadpool_limits

from coldhash import Ids, Ratings
from coldhash.errors import ColdhashError, DataError, SettingError

fast = settings(max_examples=60, deadline=None)
values = st.integers(0, 10).map(lambda n: n / 2)
triples = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 5), values), max_size=25)
pairs = st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 6)), values, max_size=25)


def columns_of(rows):
    return [[row[at] for row in rows] for at in range(3)]


def as_dict(ratings):
    """Every stored rating, the zeros too, by the ids of its user and item."""
    stored = ratings.matrix.tocoo()
    return {
        (ratings.users[user], ratings.items[item]): value
        for user, item, value in zip(
            stored.row, stored.col, stored.data.astype(float).tolist(), strict=True
        )
    }


def ratings_of(cells, n_users=6, n_items=7, times=False):
    users, items, stars = columns_of([(u, i, value) for (u, i), value in cells.items()])
    return Ratings.from_columns(
        users,
        items,
        np.array(stars, dtype=float),
        times=np.arange(len(stars)) if times else None,
        users=Ids.of(range(n_users)),
        items=Ids.of(range(n_items)),
    )


@fast
@given(triples, st.sampled_from(["last", "mean", "max"]))
def test_duplicates_follow_the_rule(rows, rule):
    given_by_pair = {}
    for user, item, value in rows:
        given_by_pair.setdefault((user, str(item)), []).append(value)
    choose = {"last": lambda v: v[-1], "mean": lambda v: sum(v) / len(v), "max": max}[rule]
    users, items, stars = columns_of(rows)
    built = Ratings.from_columns(users, items, np.array(stars, dtype=float), duplicates=rule)
    expected = {pair: np.float32(choose(given)) for pair, given in given_by_pair.items()}
    assert as_dict(built) == expected
    assert list(built.users) == list(dict.fromkeys(users))  # in order of appearance
    assert list(built.items) == list(dict.fromkeys(map(str, items)))


@fast
@given(triples)
def test_a_repeated_pair_is_an_error_that_names_its_rows(rows):
    users, items, stars = columns_of(rows)
    first_row, repeats = {}, []
    for at, (user, item, _) in enumerate(rows):
        if first_row.setdefault((user, item), at) != at:
            repeats.append((at, first_row[user, item]))
    if not repeats:
        assert len(Ratings.from_columns(users, items, np.array(stars, dtype=float))) == len(rows)
        return
    with pytest.raises(DataError) as caught:
        Ratings.from_columns(users, items, np.array(stars, dtype=float), where="line <{}>".format)
    (again, first), message = repeats[0], caught.value.message
    assert message.startswith(f"line <{again}>: ")
    assert f"in line <{first}>" in message
    assert message.endswith(f"in all: {len(repeats)}")


@pytest.mark.parametrize("rule", ["last", "mean", "max"])
def test_the_time_of_a_repeated_pair_is_the_last_ones(rule):
    built = Ratings.from_columns(
        ["a", "b", "a"], [1, 1, 1], [5, 4, 3], times=np.array([7, 8, 9]), duplicates=rule
    )
    assert built.times.tolist() == [9, 8]


def test_an_unknown_rule_is_a_setting_error():
    with pytest.raises(SettingError, match="duplicates='first'"):
        Ratings.from_columns(["a"], [1], [1], duplicates="first")


def test_a_stored_zero_is_a_rating():
    built = Ratings.from_columns(["a", "a"], ["x", "y"], [0, 3])
    assert as_dict(built) == {("a", "x"): 0.0, ("a", "y"): 3.0}
    for part in (built.of_users([0]), built.of_items([0]), built.where([True, False])):
        assert 0.0 in part.matrix.data


@fast
@given(pairs, st.randoms())
def test_parts_are_what_they_are_of_a_dense_matrix(cells, random):
    ratings = ratings_of(cells, times=True)
    time_of = dict(zip(cells, range(len(cells)), strict=True))
    users = random.sample(range(6), random.randint(0, 6))
    items = random.sample(range(7), random.randint(0, 7))

    def check(part, users, items, cells):
        expected = {(str(u), str(i)): cells[u, i] for u in users for i in items if (u, i) in cells}
        assert as_dict(part) == expected
        assert list(part.users) == list(map(str, users))
        assert list(part.items) == list(map(str, items))
        assert part.per_user.tolist() == [sum((u, i) in cells for i in items) for u in users]
        assert part.per_item.tolist() == [sum((u, i) in cells for u in users) for i in items]
        stored = part.matrix.tocoo()
        assert part.times.tolist() == [
            time_of[users[u], items[i]] for u, i in zip(stored.row, stored.col, strict=True)
        ]

    check(ratings, range(6), range(7), cells)
    check(ratings.of_users(np.array(users, dtype=int)), users, range(7), cells)
    check(ratings.of_items(np.array(items, dtype=int)), range(6), items, cells)
    keep = np.array([random.random() < 0.5 for _ in cells], dtype=bool)
    kept = {pair: cells[pair] for pair, yes in zip(sorted(cells), keep, strict=True) if yes}
    check(ratings.where(keep), range(6), range(7), kept)


def test_a_user_or_item_cannot_be_there_twice():
    ratings = ratings_of({(0, 0): 1.0, (1, 1): 2.0})
    with pytest.raises(DataError):
        ratings.of_users(np.array([0, 0]))
    with pytest.raises(DataError):
        ratings.of_items(np.array([1, 1]))


def test_nothing_can_be_written():
    ratings = ratings_of({(0, 0): 1.0, (1, 1): 2.0}, times=True)
    for array in (
        ratings.matrix.data,
        ratings.matrix.indices,
        ratings.matrix.indptr,
        ratings.times,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        ratings.matrix[0, 0] = 3
    with pytest.raises(AttributeError):
        ratings.users = None


def test_the_callers_arrays_stay_theirs():
    stars, times = np.ones(2, dtype=np.float32), np.arange(2)
    Ratings.from_columns(["a", "b"], [1, 2], stars, times=times)
    for array in (stars, times):
        array[0] = 0  # does not raise


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (float("nan"), "is nan, not a number"),
        (float("inf"), "is inf, not a number"),
        (-float("inf"), "is -inf, not a number"),
        (-1e9, "is -1e.*, outside the scale -1e"),
        (1e9, "outside the scale -1e"),
        (1e300, "outside the scale -1e"),
    ],
)
def test_an_impossible_rating_is_named(value, why):
    with pytest.raises(DataError, match=f"line 2: the rating .*{why}"):
        Ratings.from_columns(["a", "b", "c"], [1, 2, 3], [1, 2, value], where="line {}".format)
    body = csr_array(np.array([[1.0, 0.5]], dtype=np.float32))
    body.data[1] = np.float32(min(value, 1e30))
    with pytest.raises(DataError, match="user 'u', item 'y': the rating"):
        Ratings(body, Ids.of(["u"]), Ids.of(["x", "y"]))


def test_a_declared_scale_is_kept_and_checked():
    scaled = Ratings.from_columns(["a", "b"], [1, 2], [0.7, 0.1], scale=(0.1, 0.7))
    assert scaled.scale == scaled.of_users(np.array([0])).scale == (0.1, 0.7)
    assert Ratings.from_columns(["a"], [1], [-3], scale=(-5, 5)).scale == (-5, 5)
    with pytest.raises(DataError, match="row 1: the rating is 6, outside the scale 1 to 5"):
        Ratings.from_columns(["a", "b"], [1, 2], [5, 6], scale=(1, 5))
    with pytest.raises(DataError, match="outside the scale"):
        Ratings.from_columns(["a"], [1], [0.8], scale=np.array([0.1, 0.7]))


@pytest.mark.parametrize(
    "scale", [(5, 1), (0, float("inf")), (float("nan"), 1), (1, 2, 3), 5, "ab"]
)
def test_an_impossible_scale_is_a_setting_error(scale):
    with pytest.raises(SettingError, match="scale="):
        Ratings.from_columns(["a"], [1], [1], scale=scale)


def test_the_scale_is_seen_in_the_ratings_if_not_declared():
    assert Ratings.from_columns(["a", "b"], [1, 2], [4, 2]).scale == (2.0, 4.0)
    assert Ratings.from_columns([], [], []).scale == (0.0, 1.0)


def test_no_ratings_at_all():
    empty = Ratings.from_columns([], [], [], users=Ids.of([1, 2]), items=Ids.of([1, 2, 3]))
    assert empty.matrix.shape == (2, 3)
    assert (len(empty), empty.sparsity) == (0, 1.0)
    assert Ratings.from_columns([], [], []).sparsity == 1.0


def test_sparsity_is_the_share_of_unknown_entries():
    assert ratings_of({(0, 0): 1.0, (1, 1): 0.0}, 4, 5).sparsity == 1 - 2 / 20


def test_a_transposed_matrix_is_recognised():
    with pytest.raises(DataError, match="2 x 3 does not fit 3 users x 2 items") as caught:
        Ratings(csr_array((2, 3)), Ids.of(range(3)), Ids.of(range(2)))
    assert "transposed" in caught.value.hint
    with pytest.raises(DataError) as caught:
        Ratings(csr_array((2, 3)), Ids.of(range(2)), Ids.of(range(2)))
    assert "transposed" not in caught.value.hint


AB, XY = Ids.of(["a", "b"]), Ids.of(["x", "y"])
EYE = np.eye(2, dtype=np.float32)
UNSORTED = csr_array((np.ones(2, np.float32), [1, 0], [0, 2, 2]), shape=(2, 2))
TWICE = csr_array((np.ones(2, np.float32), [1, 1], [0, 2, 2]), shape=(2, 2))


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: Ratings(TWICE, AB, XY), "sorted"),
        (lambda: Ratings.from_columns(["a"], [1], [1j]), "type complex128"),
        (lambda: Ratings(csr_array(EYE.astype(float)), AB, XY), "not float32"),
        (lambda: Ratings(coo_array(EYE), AB, XY), "not float32 in CSR form"),
        (lambda: Ratings(UNSORTED, AB, XY), "sorted"),
        (lambda: Ratings(csr_array(EYE), AB, XY, np.zeros(3)), "3 times for 2 ratings"),
        (lambda: Ratings.from_columns(["a", "b"], [1], [1, 2]), "lengths: 2, 1, 2"),
        (lambda: Ratings.from_columns(["a"], [1], [1, 2]), "lengths: 1, 1, 2"),
        (lambda: Ratings.from_columns(["a"], [1], [1], times=np.zeros(2)), "1, 1, 1, 2"),
        (lambda: Ratings.from_columns(["a"], [1], [[1]]), "2 dimensions"),
        (lambda: Ratings.from_columns(["a"], [1], ["good"]), "ratings of type <U4"),
        (lambda: Ratings.from_columns(["a"], [None], [1]), "is not a valid item id"),
    ],
)
def test_what_does_not_fit_is_a_data_error(build, why):
    with pytest.raises(DataError, match=why):
        build()


def test_known_ids_keep_their_rows_and_new_ones_follow():
    built = Ratings.from_columns(["c", "a", "d"], [9, 2, 9], [1, 2, 3], users=Ids.of(["a", "b"]))
    assert list(built.users) == ["a", "b", "c", "d"]
    assert built.per_user.tolist() == [1, 0, 1, 1]


def test_a_dictionary_counts_only_for_what_it_spells():
    coded = pa.DictionaryArray.from_arrays(pa.array([3, 1, 0]), pa.array(["a", "b", "unused", "a"]))
    plain = Ratings.from_columns(["a", "b", "a"], [1, 2, 3], [1, 2, 3])
    for users in (coded, pa.chunked_array([coded[:1], coded[1:]])):
        built = Ratings.from_columns(users, [1, 2, 3], [1, 2, 3])
        assert built.users == plain.users
        assert as_dict(built) == as_dict(plain)


@pytest.mark.parametrize(
    "users",
    [
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])),
        pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.array(["a"])),
        pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", ""])),
    ],
)
def test_a_missing_id_in_a_dictionary_names_its_row(users):
    with pytest.raises(ColdhashError, match="line 1: no user id"):
        Ratings.from_columns(users, [1, 2], [1, 2], where="line {}".format)


def test_ratings_can_be_handed_to_implicit():
    rng = np.random.default_rng(0)
    rows = np.unique(rng.integers(30, size=(200, 2)), axis=0)
    matrix = Ratings.from_columns(*rows.T, np.ones(len(rows))).to_csr_matrix()
    assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
    assert all(part.flags.writeable for part in (matrix.data, matrix.indices, matrix.indptr))
    als = pytest.importorskip("implicit.als")
    with threadpool_limits(1, "blas"):  # implicit warns otherwise
        model = als.AlternatingLeastSquares(factors=4, iterations=1, num_threads=1, use_gpu=False)
        model.fit(matrix, show_progress=False)
    assert len(model.recommend(0, matrix[0], N=3)[0]) == 3
