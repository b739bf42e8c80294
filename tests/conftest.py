from __future__ import annotations

import os
from pathlib import Path

# tests compare one thread with two, on machines with one processor too; numba reads this once
os.environ["NUMBA_NUM_THREADS"] = str(
    max(2, int(os.environ.get("NUMBA_NUM_THREADS") or os.cpu_count() or 1))
)

import numba
import numpy as np
import pytest
from hypothesis import settings

# no time limits, which depend on the load, and the same inputs every time: `make fuzz` varies them
settings.load_profile("ci")


def pytest_configure() -> None:
    if numba.config.DISABLE_JIT:
        from interpreted import use_plain_lanes

        use_plain_lanes()


def pytest_itemcollected(item: pytest.Item) -> None:
    if "MUTANT_UNDER_TEST" in os.environ:
        item._nodeid = item.nodeid  # mutmut 3.8 asks for it, pytest 9.2 no longer has it


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers; sweep the seed with COLDHASH_TEST_SEED."""
    return np.random.default_rng(int(os.environ.get("COLDHASH_TEST_SEED", "0")))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with the real data sets, which are not part of the project."""
    folder = os.environ.get("COLDHASH_DATA")
    if not folder:
        pytest.skip("COLDHASH_DATA does not name a folder with ml-1m.zip and BX-CSV-Dump.zip")
    return Path(folder)


@pytest.fixture(scope="session")
def ml_1m(data_folder):
    from coldhash import read

    return read("ml-1m", data_folder / "ml-1m.zip")


@pytest.fixture(scope="session")
def sample():
    from coldhash import read

    return read("sample")
