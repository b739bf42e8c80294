from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldhash.errors import SettingError
from coldhash.evaluate.metrics import accuracy_at, hits_at


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 3), st.integers(1, 7))
def test_expected_ties_equal_random_tie_breaking(candidates, own, k):
    """Against the average over every order in which the tied ones may stand."""
    greater = sum(score > own for score in candidates)
    equal = sum(score == own for score in candidates)
    places = [greater + place for place in range(equal + 1)]
    expected = np.mean([place < k for place in places])
    (hit,) = hits_at(k, np.array([greater]), np.array([equal]))
    assert hit == pytest.approx(expected)
    (low,) = hits_at(k, np.array([greater]), np.array([equal]), "pessimistic")
    (high,) = hits_at(k, np.array([greater]), np.array([equal]), "optimistic")
    assert low <= hit <= high


def test_the_trap_a_constant_score():
    greater, equal = np.zeros(50), np.full(50, 1000)
    assert accuracy_at(10, greater, equal) == pytest.approx(10 / 1001)
    assert accuracy_at(10, greater, equal, "optimistic") == 1.0
    assert accuracy_at(10, greater, equal, "pessimistic") == 0.0


def test_pooled_over_pairs():
    greater, equal = np.array([0, 4, 5, 99]), np.array([0, 0, 0, 0])
    assert accuracy_at(5, greater, equal) == 2 / 4


def test_wrong_settings_are_named():
    with pytest.raises(SettingError, match="k=0"):
        accuracy_at(0, np.zeros(1), np.zeros(1))
    with pytest.raises(SettingError, match="ties='hopeful'"):
        accuracy_at(1, np.zeros(1), np.zeros(1), "hopeful")
    assert np.isnan(accuracy_at(1, np.zeros(0), np.zeros(0)))
