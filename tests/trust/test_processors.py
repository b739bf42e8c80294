"""One model file answers bit for bit alike on the code paths of different processors."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from coldhash import MFDCF, read
from coldhash.recommender.persistence import ENCODERS
from coldhash.registry import MODELS
from processors import code_paths

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse"),
]

ASK = """
import json, sys
import numba, numpy as np
from coldhash import load, read

data = read("sample", n_users=150, n_items=300)
crowd = data.users  # so many are answered by several threads
people = [
    {}, {"age": 31}, {"gender": "female", "occupation": "nurse"},
    {"age": 62, "city": "Elsk", "history": {"3": 5, "9": 2, "41": 4}}, {"history": {"7": 4}},
]
rated = data.ratings.matrix
answers = {"sample": [rated.indices.tolist(), rated.data.tolist(), data.items.to_pydict()]}
for path in sys.argv[1:]:
    model = load(path)
    for score in ("real", "hamming") if model.has_codes else ("real",):
        for who in ({"users": people}, {"users": crowd}, {"user_ids": ["3", "17"]}):
            said = model.recommend(**who, k=50, score=score)
            bits = np.concatenate(said.scores).tobytes().hex()
            answers[f"{path} {score} {len(said.item_ids)}"] = [said.item_ids, bits]
    encoded = model.encode(people)
    answers[f"{path} encode"] = encoded.vectors.tobytes().hex()
    answers[f"{path} score"] = model.score(encoded).tobytes().hex()
    answers[f"{path} explain"] = [model.explain(person, "12") for person in people]
used = {
    "numba": numba.config.CPU_NAME,
    "numpy": np.show_config("dicts")["SIMD Extensions"].get("found", []),
}
print(json.dumps({"used": used, "answers": answers}))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write a file for each kind of encoder, of codes and of real vectors."""
    data = read("sample", n_users=300, n_items=300)
    folder = tmp_path_factory.mktemp("models")
    names = ("cbfknn", "ddl", "dfm", "itq", "lsh", "popularity", "ridge")
    settings = {name: MODELS[name]() for name in names}
    settings |= {"mfdcf": MFDCF(n_bits=64)}
    fitted = {name: each.fit(data, seed=0) for name, each in settings.items()}
    assert {type(model.encoder).__name__ for model in fitted.values()} == set(ENCODERS)
    for name, model in fitted.items():
        model.save(folder / name)
    return sorted(folder.iterdir())


def asked(files, variables):
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ASK, *map(str, files)],
        capture_output=True,
        encoding="utf-8",
        env=os.environ | variables,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_a_file_answers_alike_on_every_code_path(files):
    """Not a bit of a score or a vector differs, by any measure, and the sample is the same."""
    paths = code_paths()
    if not paths:
        pytest.skip("this processor has one code path")
    expected = asked(files, {})["answers"]
    for name, variables in paths.items():
        found = asked(files, variables)
        if "NUMBA_CPU_NAME" in variables:
            assert found["used"]["numba"] == variables["NUMBA_CPU_NAME"]
        if "NPY_DISABLE_CPU_FEATURES" in variables:
            assert found["used"]["numpy"] == []
        differing = [what for what, answer in expected.items() if found["answers"][what] != answer]
        assert differing == [], name
