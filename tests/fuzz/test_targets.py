"""A fixed budget of broken inputs for every target; `make fuzz` looks for longer."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.targets import LEAST, TARGETS

pytestmark = pytest.mark.slow

BUDGET = {"tables": 400, "plans": 300, "models": 300, "commands": 150, "bodies": 500}
MARKS = b'"\n\r,:\\\0\xff{}[]-=.0189eE|;\t# '
WORDS = (b"1e999", b"NaN", b"null", b"true", b"-1", b"[" * 2000, b"9" * 400, b"\xed\xa0\x80",
         b'"\\ud800"', b"\xef\xbb\xbf", b"1.5", b'""', b"{}", b"18446744073709551616")  # fmt: skip
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["delete", "double", "mark", "word", "flip", "cut", "swap"]),
        st.floats(0, 1, exclude_max=True),
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 255),
    ),
    max_size=6,
)


def changed(content, changes):
    """Change bytes here and there, in ways that a parser may stumble over."""
    body = bytearray(content)
    for what, place, length, n in changes:
        at = LEAST + int(place * max(len(body) - LEAST, 0))
        end = at + 1 + int(length**3 * len(body))  # mostly a little
        if what == "delete":
            del body[at:end]
        elif what == "double":
            body[at:at] = body[at:end]
        elif what == "mark":
            body[at : at + n % 2] = MARKS[n % len(MARKS) :][:1]
        elif what == "word":
            body[at : end if n % 2 else at] = WORDS[n // 2 % len(WORDS)]
        elif what == "flip" and at < len(body):
            body[at] ^= 1 << n % 8
        elif what == "swap":
            body[at:end] = body[at:end][::-1]
        elif what == "cut":
            del body[at:]
    return bytes(body)


def inputs(seeds):
    near = st.builds(changed, st.sampled_from(seeds), CHANGES)
    return st.one_of(near, near, near, st.binary(min_size=LEAST, max_size=200))


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_comes_in_only_errors_of_the_tree_come_out(name):
    target = TARGETS[name]
    seeds = target.seeds()

    @settings(
        max_examples=BUDGET[name],
        deadline=None,
        derandomize=True,  # the same inputs every time: who looks for new ones runs `make fuzz`
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs(seeds))
    def try_out(data):
        target.run(data)

    for seed in seeds:
        target.run(seed)
    try_out()
