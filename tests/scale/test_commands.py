"""`coldhash prepare`, `fit --parts` and `fit --dask`."""

from __future__ import annotations

import numpy as np
import pytest

from coldhash import load
from commands import coldhash_command, coldhash_in_process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse"),
]

RATINGS = ["user_id,item_id,rating"] + [
    f"{user},{item},{1 + (user + item) % 5}"
    for user in range(30)
    for item in range(user % 3, 20, 3)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("commands")
    (made / "r.csv").write_text("\n".join(RATINGS) + "\n", encoding="utf-8")
    towns = [f"{user},{'Oslo Rome Bonn'.split()[user % 3]}" for user in range(30)]
    (made / "u.csv").write_text("\n".join(["user_id,town", *towns]) + "\n", encoding="utf-8")
    run = coldhash_in_process(
        "prepare", "--ratings", "r.csv", "--users", "u.csv", "--out", "parts", "--part-users", "8",
        cwd=made,
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (0, "parts: 200 ratings in 4 partitions\n"), run.stderr
    return made


def test_from_partitions_and_on_dask_the_models_are_the_same(folder):
    fit = ["fit", "--parts", "parts", "--bits", "16", "--set", "n_rounds=2"]
    run = coldhash_in_process(*fit, "--out", "one", "--memory", "2GB", cwd=folder)
    assert run.returncode == 0, run.stderr
    run = coldhash_command(*fit, "--out", "two", "--dask", "local", cwd=folder)
    assert run.returncode == 0, run.stderr
    one, two = load(folder / "one"), load(folder / "two")
    np.testing.assert_array_equal(one.items.packed(), two.items.packed())
    np.testing.assert_array_equal(one.user_vectors, two.user_vectors)
    assert not (folder / "one.work").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--parts", "parts", "--ratings", "r.csv"], "--parts already is the data"),
        (["--parts", "parts", "--model", "ridge"], "ridge fits in memory only"),
        (["--parts", "nothing"], "holds no prepared data"),
        (["--parts", "parts", "--memory", "lots"], "'lots' is not a size"),
    ],
)
def test_mistakes_are_told_in_one_line(folder, arguments, message):
    run = coldhash_in_process("fit", "--out", "m", *arguments, cwd=folder)
    assert run.returncode == 2
    assert message in run.stderr
    assert "Traceback" not in run.stderr
