"""Methods of other packages, found by their entry points."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldhash import MODELS, read
from coldhash.baselines.shared import StackEncoder
from coldhash.errors import SettingError
from commands import coldhash_in_process

PLUGIN = """
from dataclasses import dataclass, replace
from coldhash.baselines.controls import Popularity

@dataclass(frozen=True)
class Favourites(Popularity):
    def fit(self, data, seed=0, callback=None):
        return replace(super().fit(data, seed, callback), name="favourites")
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "outside_method.py").write_text(PLUGIN, encoding="utf-8")
    about = tmp_path / "outside_method-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: outside-method\nVersion: 1.0\n", encoding="utf-8")
    lines = (
        "[coldhash.models]",
        "favourites = outside_method:Favourites",
        "broken = outside_method:Nothing",
        "mfdcf = outside_method:Favourites",
    )
    (about / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)


def test_a_method_of_another_package(package, tmp_path):
    assert "favourites" in list(MODELS)
    assert len(MODELS) == len(list(MODELS))
    data = read("sample", n_users=200, n_items=60)
    model = MODELS["favourites"]().fit(data)
    assert model.name == "favourites"
    usual = MODELS["popularity"]().fit(data)
    assert model.recommend({}, k=3).item_ids == usual.recommend({}, k=3).item_ids
    out = tmp_path / "m.coldhash"
    run = coldhash_in_process("fit", "--dataset", "sample", "--model", "favourites", "--out", out)
    assert run.returncode == 0, run.stderr
    run = coldhash_in_process("inspect", out)
    assert "method: favourites" in run.stdout


def test_a_method_of_this_package_is_not_replaced(package):
    assert MODELS["mfdcf"].__module__ == "coldhash.mfdcf.model"
    assert list(MODELS).count("mfdcf") == 1


def test_a_method_that_cannot_be_imported(package):
    with pytest.raises(SettingError, match=r"'broken', outside_method:Nothing.*hint: install"):
        MODELS["broken"]
    with pytest.raises(KeyError):
        MODELS["nowhere"]


def test_without_the_package_it_is_gone():
    assert "favourites" not in list(MODELS)


def test_an_encoder_of_another_package_is_not_written_to_a_file(tmp_path):
    class OtherEncoder(StackEncoder):
        pass

    model = MODELS["ridge"]().fit(read("sample", n_users=200, n_items=60))
    other = replace(model, encoder=OtherEncoder(**vars(model.encoder)))
    with pytest.raises(SettingError, match=r"OtherEncoder.*hint: one of .*StackEncoder"):
        other.save(tmp_path / "m")
