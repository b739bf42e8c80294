"""Model files with a right checksum and wrong parts are refused, or the model answers."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from coldhash import FeaturePlan, load, read
from coldhash.baselines.controls import Popularity
from coldhash.errors import DataError, ModelFileError
from coldhash.mfdcf.model import MFDCF
from coldhash.recommender import model_file
from coldhash.registry import MODELS

pytestmark = pytest.mark.slow  # hundreds of files for every method

SMALL = {"n_bits": 16, "n_rounds": 2, "n_epochs": 2, "n_iterations": 2, "n_factors": 4}


def settings(name):
    form = MODELS[name]
    return form(**{n: v for n, v in SMALL.items() if n in form.__dataclass_fields__})


@pytest.fixture(scope="module")
def data():
    return read("sample", n_users=90, n_items=70)


def first_changed(array, value, kinds):
    changed = array.copy()
    if array.dtype.kind in kinds:
        changed.reshape(-1)[:1] = value
    return changed


MUTATIONS = {
    "missing": lambda array: None,
    "longer": lambda array: np.concatenate([array, array[:1]]),
    "shorter": lambda array: array[:-1],
    "narrower": lambda array: array[..., :-1],
    "another axis": lambda array: array[None],
    "flat": lambda array: array.reshape(-1),
    "NaN": lambda array: first_changed(array, np.nan, "f"),
    "infinite": lambda array: first_changed(array, np.inf, "f"),
    "far away": lambda array: first_changed(array, 100, "iu" if array.itemsize > 1 else ""),
    "int8": lambda array: array.astype(np.int8),
    "uint64": lambda array: array.astype(np.uint64),
    "float16": lambda array: array.astype(np.float16),
    "float64": lambda array: array.astype(np.float64),
}


def ask(model):
    """Ask all that a service asks; answers must be finite."""
    items, users = (
        [model.item_ids[0], model.item_ids[len(model.item_ids) - 1]],
        list(model.user_ids),
    )
    person = {**model.features.example(), "history": dict.fromkeys(items, model.scale[1])}
    people = [{}, person, {"history": person["history"]}, model.features.example()]
    for score in ("real", "hamming") if model.has_codes else ("real",):
        for who in ({"users": people}, {"user_ids": [users[0], users[-1]]}):
            answer = model.recommend(**who, k=3, score=score, exclude_seen=False)
            assert np.isfinite(answer.scores).all()
    for item in items:
        model.similar_items(item, k=2)
        assert np.isfinite(model.explain(person, item)["score"])
    if model.item_table is not None:
        model.item_table.to_pylist()


# read by the same code for every method: these tensors are changed in two of the models only
SHARED = ("features/", "item_ids/", "user_ids/", "item_table", "seen/")
WHOLE = ("mfdcf", "ridge")


def check_mutations(model, folder, skipped=()):
    path = folder / "model"
    model.save(path)
    facts, tensors = model_file.read(path)
    tensors = {name: np.array(array) for name, array in tensors.items()}
    chosen = {name: array for name, array in tensors.items() if not name.startswith(skipped)}
    n_refused = 0
    for name, array in chosen.items():
        for mutation, change in MUTATIONS.items():
            with np.errstate(all="ignore"):
                changed = change(array)
            rest = {n: a for n, a in tensors.items() if n != name}
            model_file.write(path, facts, rest if changed is None else rest | {name: changed})
            try:
                loaded = load(path)
            except ModelFileError:
                n_refused += 1
                continue
            try:
                ask(loaded)
            except Exception as error:
                raise AssertionError(f"{name}: {mutation} was loaded") from error
            assert mutation != "missing" or name == "item_table", name
    assert n_refused > 4 * len(chosen)


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # hundreds of files, none to be kept


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
@pytest.mark.parametrize("name", MODELS)
def test_a_wrong_tensor_is_refused_or_harmless(name, data, tmp_path):
    check_mutations(settings(name).fit(data), tmp_path, () if name in WHOLE else SHARED)


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_a_wrong_tensor_of_any_kind_of_column_is_refused_or_harmless(data, tmp_path):
    n_users = len(data.ratings.users)
    users = data.users.append_column("bio", pa.array(["likes old films"] * n_users))
    users = users.append_column("taste", pa.array([[float(n % 7), 1.0] for n in range(n_users)]))
    columns = {
        "bio": {"kind": "text", "min_count": 1},
        "taste": {"kind": "vector"},
        "age": {"kind": "number"},
    }
    plan = data.plan.model_dump() | {"users": {"demographics": columns}}
    described = replace(data, users=users, plan=FeaturePlan(**plan))
    model = MFDCF(n_bits=16, n_rounds=2).fit(described)
    check_mutations(model, tmp_path)


def test_groups_of_no_weight_are_refused(data, tmp_path):
    model = MFDCF(n_bits=32).fit(data)
    assert model.encoder.answers is not None
    weightless = replace(model.encoder, weights=dict.fromkeys(model.encoder.weights, 0.0))
    replace(model, encoder=weightless).save(tmp_path / "model")
    with pytest.raises(ModelFileError):
        load(tmp_path / "model")


def with_large_rows(model, folder):
    """Load the model with the largest numbers in a middle row of one tensor, for each tensor."""
    model.save(folder / "model")
    facts, tensors = model_file.read(folder / "model")
    for name, array in tensors.items():
        if array.dtype.kind == "f" and array.size:
            changed = np.array(array)
            changed[len(changed) // 2] = np.finfo(changed.dtype).max
            model_file.write(folder / "large", facts, tensors | {name: changed})
            with contextlib.suppress(ModelFileError):
                yield load(folder / "large")


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
@pytest.mark.parametrize("name", ["mfdcf", "mf", "cbfknn", "popularity"])
def test_an_answer_is_finite_or_an_error(name, data, tmp_path):
    """All numbers of a file may be finite, and sums and products of them infinite."""
    n_refused = 0
    for model in with_large_rows(settings(name).fit(data), tmp_path):
        item, user = model.item_ids[35], model.user_ids[45]
        person = {"age": 70, "gender": "female"}
        questions = [
            lambda model=model, who=who: model.recommend(**who, k=70).scores
            for who in ({"users": person}, {"users": {"history": {item: 5}}}, {"user_ids": [user]})
        ]
        questions += [
            lambda model=model, item=item: model.similar_items(item, k=69).to_arrow()["score"],
            lambda model=model, item=item: [model.explain({"history": {item: 5}}, item)["score"]],
            lambda model=model, person=person: model.score(person),
        ]
        for question in questions:
            try:
                scores = np.asarray(question())
            except DataError:
                n_refused += 1
            else:
                assert np.isfinite(scores[scores != -np.inf]).all()  # -inf: fewer items than asked
    assert n_refused or name == "mfdcf"  # gains below 1 keep its sums finite


# Arrow


def test_an_offset_far_outside_is_refused(data, tmp_path):
    path = tmp_path / "model"
    Popularity().fit(data).save(path)
    facts, tensors = model_file.read(path)
    titles = model_file.arrow_table(tensors["item_table"]).column("title").chunk(0)
    offsets = np.frombuffer(titles.buffers()[1], np.int32)[: len(titles) + 1]
    content = tensors["item_table"].tobytes()
    wrong = offsets.copy()
    wrong[3] = 2**31 - 100
    assert content.count(offsets.tobytes()) == 1
    changed = content.replace(offsets.tobytes(), wrong.tobytes())
    tensors = {name: np.array(array) for name, array in tensors.items()}
    model_file.write(path, facts, tensors | {"item_table": np.frombuffer(changed, np.uint8)})
    with pytest.raises(ModelFileError, match=r"(?i)offset"):
        load(path)


def test_a_table_of_other_length_is_refused(data, tmp_path):
    model = Popularity().fit(data)
    replace(model, item_table=model.item_table[1:]).save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="69 lines for 70 items"):
        load(tmp_path / "model")


FLIPS = """
import os, sys
from pathlib import Path
import numpy as np
sys.path.insert(0, sys.argv[2])
from test_mutations import ModelFileError, ask, load, model_file
from coldhash.serve.registry import ServedModel
os.fsync = lambda handle: None
path, rng = Path(sys.argv[1]), np.random.default_rng(int(sys.argv[3]))
facts, tensors = model_file.read(path)
tensors = {name: np.array(array) for name, array in tensors.items()}
parts = [name for name in tensors if name.startswith(("item_table", "item_ids", "user_ids"))]
n_refused = 0
n_flips = int(sys.argv[4])
for n in range(n_flips):
    name = "item_table" if n % 2 else parts[rng.integers(len(parts))]
    changed = tensors[name].copy()
    flat = changed.view(np.uint8).reshape(-1)
    for at in rng.integers(len(flat), size=1 + n % 3):
        flat[at] ^= 1 << rng.integers(8)
    model_file.write(path, facts, tensors | {name: changed})
    print(n, name, flush=True)
    try:
        model = load(path)
    except ModelFileError:
        n_refused += 1
        continue
    list(model.item_ids), list(model.user_ids)
    if model.item_table is not None:
        model.item_table.to_pylist()
        ServedModel(model, "x").search_items("a", 5)
print("refused", n_refused)
"""


def test_flipped_bits_in_tables_and_ids_do_not_end_the_process(data, tmp_path):
    path = tmp_path / "model"
    Popularity().fit(data).save(path)
    command = [sys.executable, "-c", FLIPS, str(path), str(Path(__file__).parent), "0", "300"]
    run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert run.returncode == 0, run.stdout[-100:] + run.stderr
    assert 50 < int(run.stdout.split()[-1]) < 300
