"""LSH: chances of collision are what theory says, and buckets vote."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import contract
import worlds
from coldhash import read
from coldhash.baselines.lsh import LSH, BucketEncoder, Tokens, bucket_keys
from coldhash.baselines.shared import favourite_matrix
from coldhash.errors import SettingError
from coldhash.features.fitting import fit_features

SETTINGS = {
    "lsh": LSH(),
    "lsh, plain": LSH(n_tables=3, n_hashes=2, smoothing=0),
}


@pytest.fixture(scope="module")
def small():
    return read("sample", n_users=240, n_items=90)


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", SETTINGS)
def test_contract(name, check, small):
    check(SETTINGS[name], small)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_checkerboard_is_learned(name):
    model = SETTINGS[name].fit(worlds.checkerboard())
    for parity, own in (("even", 0), ("odd", 1)):
        scores = model.score(model.encode({"parity": parity}))[0]
        assert scores[own::2].min() > scores[1 - own :: 2].max()


@pytest.mark.parametrize("n_hashes", [1, 2, 3])
@pytest.mark.parametrize(("first", "second"), [("abcd", "abcx"), ("ab", "abcdefgh"), ("abc", "a")])
def test_collisions_are_as_frequent_as_the_jaccard_index_says(first, second, n_hashes, rng):
    one, two = set(map(ord, first)), set(map(ord, second))
    marked = np.zeros((2, 128), dtype=bool)
    marked[0, list(one)] = marked[1, list(two)] = True
    n_tables = 5_000
    multipliers = rng.integers(2**64, size=(n_tables, n_hashes), dtype=np.uint64) | np.uint64(1)
    shifts = rng.integers(2**64, size=(n_tables, n_hashes), dtype=np.uint64)
    keys, _ = bucket_keys(csr_array(marked), multipliers, shifts)
    chance = (len(one & two) / len(one | two)) ** n_hashes
    error = np.sqrt(chance * (1 - chance) / n_tables)
    assert abs((keys[0] == keys[1]).mean() - chance) < 4 * error


def test_tokens_are_what_is_known(small):
    encoder = fit_features(small)
    tokens = Tokens.of(encoder, ("demographics",))
    people = [
        {"gender": "male"},
        {"gender": "male", "city": "Elsk"},
        {"gender": "male", "city": "never heard of"},
        {"age": 40, "gender": "female", "occupation": "nurse", "city": "Elsk"},
        {},
    ]
    found = tokens(encoder.apply(people))
    counts = np.diff(found.indptr)
    assert counts[[0, 1, 2, 4]].tolist() == [1, 2, 1, 0]
    assert 4 <= counts[3] <= 5  # an age halfway between two knots is both
    assert (found[[0]] != found[[2]]).nnz == 0
    assert (found[[0]] - found[[0]].multiply(found[[1]])).nnz == 0


def test_a_bucket_votes_with_its_members_shares():
    data = worlds.checkerboard()
    model = LSH(n_tables=4, n_hashes=2, smoothing=0).fit(data)
    liked = favourite_matrix(data).toarray()
    scores = model.score(model.encode({"parity": "even"}))[0]
    np.testing.assert_allclose(scores, liked[::2].mean(axis=0), rtol=1e-5, atol=1e-6)


def test_smoothing_mixes_in_everybody():
    data = worlds.checkerboard()
    model = LSH(n_tables=4, smoothing=12).fit(data)
    liked = favourite_matrix(data).toarray()
    expected = (liked[::2].sum(axis=0) + 12 * liked.mean(axis=0)) / (12 + 12)
    scores = model.score(model.encode({"parity": "even"}))[0]
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)


def test_where_nobody_has_a_token_everybody_gets_popularity():
    data = worlds.checkerboard()
    model = LSH().fit(data.of_users(np.arange(0, 24, 2)))  # all even: nothing tells them apart
    encoded = model.encode([{"parity": "even"}, {"parity": "odd"}])
    assert encoded.fallback.all()
    np.testing.assert_array_equal(model.score(encoded)[0], model.popularity)


def test_a_stored_encoder_says_the_same(small):
    model = LSH().fit(small)
    encoder = BucketEncoder.restore(model.encoder.state(), model.items, model.features)
    features = model.features.apply(contract.PEOPLE)
    before, after = model.encoder.encode(features, None), encoder.encode(features, None)
    np.testing.assert_array_equal(before.vectors, after.vectors)


@pytest.mark.parametrize("settings", [{"n_tables": 0}, {"n_hashes": 0}, {"smoothing": -1}], ids=str)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(SettingError, match="LSH"):
        LSH(**settings)
