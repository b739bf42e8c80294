"""ITQ: the loss never rises, and codes that are there are found."""

from __future__ import annotations

import numpy as np
import pytest

import contract
from coldhash import read
from coldhash.arrays.codes import signs
from coldhash.baselines.itq import ITQ
from coldhash.baselines.mf import MF
from coldhash.baselines.shared import find_rotation, random_rotation
from coldhash.errors import SettingError


@pytest.fixture(scope="module")
def small():
    return read("sample", n_users=240, n_items=90)


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_contract(check, small):
    check(ITQ(n_bits=8), small)


@pytest.mark.parametrize("n_bits", [1, 8, 17])
def test_the_loss_never_rises(n_bits, rng):
    F = rng.standard_normal((100, n_bits)) * rng.random(n_bits)
    R, losses = find_rotation(F, random_rotation(n_bits, rng), 50)
    np.testing.assert_allclose(R @ R.T, np.eye(n_bits), atol=1e-9)
    assert (np.diff(losses) <= 1e-9 * losses[0]).all()


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_a_rotation_keeps_every_product(small):
    model = ITQ(n_bits=8).fit(small)
    factors = MF(n_factors=8, confidence=30.0, ridge=15.0).fit(small)
    P = factors.user_vectors
    np.testing.assert_allclose(
        model.user_vectors @ model.user_vectors.T, P @ P.T, rtol=1e-3, atol=1e-4
    )


def test_rotated_codes_are_turned_back(rng):
    """Rows that are codes but for a small rotation are brought back to codes."""
    C = signs(rng.standard_normal((400, 6)), np.float64)
    losses = [
        find_rotation(C @ random_rotation(6, rng), random_rotation(6, rng), 50)[1][-1]
        for _ in range(10)
    ]
    assert min(losses) < 1e-6 * C.size


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_its_report_is_the_loss(small):
    told: list[float] = []
    model = ITQ(n_bits=8).fit(small, callback=lambda _, loss: told.append(loss))
    assert model.name == "itq+map"
    assert model.report["objective"] == told
    assert len(told) == 50


@pytest.mark.parametrize(
    "settings",
    [{"n_bits": 0}, {"n_rounds": 0}, {"map_ridge": 0}, {"ridge": 0}],
    ids=str,
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(SettingError):
        ITQ(**settings)
