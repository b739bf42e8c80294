"""The paper's figures on the sample world: run, judged, written; and verdicts on planted hits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coldhash import read
from coldhash.errors import SettingError
from coldhash.evaluate import UserHits
from coldhash.lab import runner
from coldhash.lab.experiment import Experiment, experiments_folder
from coldhash.lab.reproduce import (
    SECTIONS,
    describe_results,
    extensions,
    make_section,
    write_report,
)
from coldhash.lab.reproduce.extensions import find_below, geometric_mean, make_cell
from coldhash.lab.reproduce.paper import judge_outperforms
from coldhash.lab.reproduce.report import PRINTED
from coldhash.lab.runner import Results, run_experiment

KEPT = {
    "figure-1": {"mfdcf", "mfdcf, no level", "cbfknn", "zsr", "dfm", "ddl", "popularity", "ridge"},
    "figure-3": None,
    "figure-4": None,
    "table-2": None,
    "ablation": None,
    "shots": None,
    "bytes": None,
    "protocols": {"mfdcf", "mfdcf, no level", "popularity"},
    "anywhere": None,
}


@pytest.fixture(scope="module")
def small_sample():
    """Let experiments read a smaller sample than the one that is shipped."""

    def read_small(name, folder=None, n_users=300, n_items=150):
        return read(name, folder, n_users=n_users, n_items=n_items)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "_read", read_small)
        runner._read_split.cache_clear()
        yield
    runner._read_split.cache_clear()


def in_the_sample(name: str) -> Experiment:
    """Run an experiment on the sample, with codes so short that it is quick."""

    def lengths(each):
        has_level = each.model == "mfdcf" and each.settings.get("level", True)
        return [16] if name == "ablation" else [16, 32] if has_level else [8, 16]

    plan = Experiment.from_toml(experiments_folder() / f"{name}.toml").quick_version()
    models = [
        each.model_copy(
            update={
                "datasets": ["sample"],
                "splits": 1,
                "order": None if each.order == "time" else "random",  # the sample has no times
                "grid": each.grid | ({"n_bits": lengths(each)} if "n_bits" in each.grid else {}),
                "settings": each.settings | ({"n_bits": 16} if "n_bits" in each.settings else {}),
            }
        )
        for each in plan.models
        if KEPT[name] is None or (each.label or each.model) in KEPT[name]
    ]
    return plan.model_copy(update={"models": models})


@pytest.mark.slow
@pytest.mark.parametrize("name", KEPT)
@pytest.mark.usefixtures("small_sample")
def test_an_experiment_becomes_a_section(name, tmp_path):
    plan = in_the_sample(name)
    results = run_experiment(plan, None, tmp_path)
    section = describe_results(plan, results)
    if name == "ablation":  # of the printed method as well
        assert all(f"| {label} |" in section.text for label in results.values("label"))
    assert section.name == name
    assert "nan" not in section.text
    report = write_report([section], tmp_path / "report", "coldhash reproduce try").read_text(
        encoding="utf-8"
    )
    assert section.title in report
    for claim in section.claims:
        assert claim.text in report
        assert f"**{claim.verdict}**" in report
    for ending in section.figures:
        assert f"figures/{name}{ending}.png" in report
        assert (tmp_path / "report" / "figures" / f"{name}{ending}.svg").stat().st_size > 1000
    assert str(tmp_path) not in report


@pytest.mark.parametrize(("users", "verdict"), [(2000, "holds"), (2001, "does not hold")])
def test_the_statistics_of_the_data(users, verdict, tmp_path, monkeypatch):
    """Of the sample; those of the published archives are counted in tests/data."""
    n_ratings = read("sample").n_ratings
    sparsity = round(100 - n_ratings / 2e4, 2)
    statistics = {"sample": [users, 1000, n_ratings, sparsity]}
    monkeypatch.setitem(PRINTED, "statistics", statistics)
    section = make_section("table-1", tmp_path, tmp_path)
    assert [claim.verdict for claim in section.claims] == [verdict]
    assert f"{n_ratings:,}" in section.text


@pytest.mark.slow
def test_new_items_beside_their_peers(tmp_path, monkeypatch):
    small = read("sample", n_users=300, n_items=150)
    monkeypatch.setattr(extensions, "_NEW_ITEM_DATASETS", ("sample",))
    monkeypatch.setattr(extensions, "read", lambda name, folder: small)
    section = make_section("new-items", tmp_path, tmp_path, quick=True)
    methods = [line.split(" | ")[1] for line in section.text.splitlines() if "the sample" in line]
    peers = ["content kNN", "ridge on content", "popularity of category"]
    assert methods == ["MFDCF", "MFDCF, Hamming", *peers]
    assert "nan" not in section.text


def test_a_wrong_name_is_told_with_the_right_ones(tmp_path):
    with pytest.raises(SettingError, match="figure-9") as caught:
        make_section("figure-9", tmp_path, tmp_path)
    assert "figure-1" in str(caught.value)


def test_every_section_has_an_experiment():
    assert set(SECTIONS) - {"table-1", "ask", "new-items"} == {
        path.stem for path in experiments_folder().glob("*.toml")
    }


@pytest.mark.parametrize(
    ("fair", "unfair", "verdict"),
    [
        (0.3, 0.3, "holds"),
        (0.2, 0.3, "inconclusive"),
        (0.1, 0.3, "does not hold under fair ties"),
        (0.1, 0.1, "does not hold"),
    ],
)
def test_verdicts_on_planted_hits(tmp_path, fair, unfair, verdict):
    """The rival hits with chance 0.2, fair ties or not."""
    rows = [
        planted_row(tmp_path, "mfdcf, no level", "hamming", 8, fair, unfair),
        *(planted_row(tmp_path, label, "real", None, 0.2, 0.2) for label in ("cbfknn", "zsr")),
    ]
    claim = judge_outperforms(Results(rows), "claim", ("cbfknn", "zsr"), "hamming")
    assert claim.verdict == verdict, claim.evidence


def planted_row(folder, label, score, n_bits, fair, unfair):
    n, per_user = 400, 20
    question = {
        "protocol": "sampled-1000",
        "shots": 0,
        "oracle": False,
        "score": score,
        "popularity": 1.0,
    }
    columns = {name: [value] * n for name, value in question.items()}
    columns |= {"user_id": [str(u) for u in range(n)], "pairs": np.full(n, per_user)}
    rng = np.random.default_rng(0)  # the same luck for all
    luck = rng.random((n, per_user))
    for k in (5, 10, 20):
        columns[f"hits@{k}"] = (luck < fair).sum(axis=1).astype(np.float32)
        columns[f"optimistic@{k}"] = (luck < unfair).sum(axis=1).astype(np.float32)
    path = folder / f"{label}.parquet"
    pq.write_table(pa.table(columns), path)
    return question | {
        "label": label, "n_bits": n_bits, "split": 0, "users_file": path, "accuracy@10": fair,
    }  # fmt: skip


def test_the_report_in_the_docs_is_what_the_readme_shows():
    root = Path(__file__).parents[2]  # the package may be installed elsewhere
    docs = (root / "docs" / "results.md").read_text(encoding="utf-8")
    readme = (root / "README.md").read_text(encoding="utf-8")
    results = readme.partition("## Results")[2].partition("\n## ")[0]
    table = [line for line in results.splitlines() if line.startswith("| ")]
    assert table, "the README shows no result"
    assert all(line in docs for line in table)


def hits_of(chance: float, n: int = 400, per_user: int = 20) -> list[UserHits]:
    """Plant hits of a chance in two splits, with the same luck for everybody."""
    luck = np.random.default_rng(0).random((2, n, per_user))
    pairs = np.full(n, per_user)
    return [UserHits(np.arange(n), (each < chance).sum(axis=1), pairs) for each in luck]


def test_a_cell_is_a_pooled_difference_over_users():
    worse = make_cell("d", 0, "real", 10, hits_of(0.18), hits_of(0.2))
    assert worse.ratio == pytest.approx(0.9, abs=0.02)
    assert worse.accuracy < worse.popularity
    assert worse.p < 1e-6
    better = make_cell("d", 0, "real", 10, hits_of(0.22), hits_of(0.2))
    assert better.p > 0.999
    same = make_cell("d", 0, "real", 10, hits_of(0.2), hits_of(0.2))
    assert (same.ratio, same.p) == (1.0, 1.0)
    assert geometric_mean([worse, better]) == pytest.approx((worse.ratio * better.ratio) ** 0.5)


def test_cells_below_popularity_are_found_by_holms_rule():
    cell = make_cell("d", 0, "real", 10, hits_of(0.2), hits_of(0.2))
    ps = [0.5, 0.012, 0.03, 0.013]  # against .05 / 4, / 3, / 2, / 1
    cells = [replace(cell, p=p) for p in ps]
    assert [each.p for each in find_below(cells)] == [0.012, 0.013]
    assert find_below([replace(cell, p=0.013)] * 4) == []
