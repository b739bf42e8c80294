"""Vectors that are kept for those who are asked about again."""

from __future__ import annotations

import tracemalloc

import numpy as np

from coldhash.serve.encodings import Encodings


def test_what_is_kept_is_what_would_be_computed(model):
    kept = Encodings(model)
    for person in ({"age": 30}, {"age": 30.0}, {"age": 30, "user_id": "x"}, {}):
        asked = {name: value for name, value in person.items() if name != "user_id"}
        for _ in range(2):
            assert np.array_equal(kept.of(person).vectors, model.encode(asked).vectors)


def test_the_same_person_is_encoded_once(model):
    kept = Encodings(model)
    assert kept.of({"age": 30, "gender": "male"}) is kept.of({"gender": "male", "age": 30})


def test_little_is_kept_of_each(model):
    kept = Encodings(model)
    kept.of({"age": 30})
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for n in range(500):
            kept.of({"city": f"never seen {n}"})
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 500 * 2500  # bytes; 5,000 each where the key is the bytes of orjson
