from __future__ import annotations

import threading

import numba
import numpy as np
import pytest

from coldhash.arrays.threads import run_pieces, run_rows


@pytest.fixture(autouse=True)
def _two_threads():
    before = numba.get_num_threads()
    numba.set_num_threads(min(2, numba.config.NUMBA_NUM_THREADS))
    yield
    numba.set_num_threads(before)


def test_results_come_in_order_and_pieces_may_have_pieces():
    def nested(n):
        return sum(run_pieces(lambda m: m * n, range(10)))

    assert list(run_pieces(nested, range(50))) == [45 * n for n in range(50)]


def test_an_error_of_a_piece_is_raised_and_threads_go_on():
    with pytest.raises(ZeroDivisionError):
        list(run_pieces(lambda n: 1 // n, [1, 0, 1, 1, 1]))
    assert list(run_pieces(abs, [-1, -2])) == [1, 2]


def test_pieces_are_taken_when_there_is_room_for_their_results():
    taken = []
    pieces = (taken.append(n) or n for n in range(100))
    results = run_pieces(abs, pieces)
    assert [next(results), next(results)] == [0, 1]
    assert len(taken) <= numba.get_num_threads() + 3  # one more is ready, and two are done
    results.close()
    assert len(taken) < 100


@pytest.mark.parametrize("sizes", [[0] * 200, [1000] + [0] * 199, [0] * 199 + [7], [3] * 200, []])
def test_every_row_is_taken_once(sizes):
    taken, lock = np.zeros(len(sizes), int), threading.Lock()

    def take(first, last):
        with lock:
            taken[first:last] += 1

    run_rows(take, np.concatenate([[0], np.cumsum(sizes)]))
    assert (taken == 1).all()
