"""Six hundred hostile requests to a real server; `benchmarks/bench_hostile.py` sends 100,000."""

from __future__ import annotations

import asyncio

import pytest

from coldhash import load
from hostile import MAKERS, shots
from storm import Outcome, right_answers, served_5xx, storm

pytestmark = pytest.mark.slow

N_SHOTS = 600


def test_hostile_requests_harm_nobody_and_good_ones_are_answered_right(live, model_files):
    server, model = live(model_files["a"], "--allowed-host", "x"), load(model_files["a"])
    outcome, port = Outcome(), int(server.url.rsplit(":", 1)[1])
    asyncio.run(storm(port, shots(N_SHOTS, 0, right_answers(model), list(model.item_ids)), outcome))
    assert not outcome.bad
    assert not outcome.wrong
    assert not outcome.hung
    assert sum(outcome.statuses.values()) == N_SHOTS
    assert len(outcome.kinds) == len(MAKERS) + 1  # all kinds, and the good ones
    assert {"200", "400", "404", "405", "413", "422"} <= set(outcome.statuses)
    assert outcome.kinds["good"] == {"200": N_SHOTS // 5}
    assert served_5xx(server.client.get("/metrics").text) == 0
    assert server.process.poll() is None
    assert "Traceback" not in server.log()
