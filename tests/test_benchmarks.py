"""The page of benchmarks: JSON in, Markdown out; nothing that was asked for vanishes from it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import page
import table
from page import Script
from table import Row

FOLDER = Path(table.__file__).parent
READ = Script(FOLDER / "bench_read.py", "read", "Reading and start-up.")
FIT = Script(FOLDER / "bench_fit.py", "fit", "Fitting time.")


def measured(rows, out, monkeypatch, beside=None, arguments=("bench_read.py",)) -> int:
    """Let a benchmark end, as a script does; gives its exit code."""
    monkeypatch.setattr(sys, "argv", list(arguments))
    with pytest.raises(SystemExit) as ended:
        table.finish(rows, out, beside)
    return int(ended.value.code)


def made(known, folder, reasons=None) -> str:
    return page.page(known, page.results(folder, known), reasons or {})


def cells_of(text: str, figure: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith("| ") and figure in line]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_missed_target_is_bold_and_counted(tmp_path, monkeypatch):
    rows = [
        Row("ours / numpy", 1.0, 2.0, "<= 0.6", "numpy"),
        Row("seconds / 2", 3.0, 2.0, "<= 1"),
        Row("accuracy / popularity", 0.4, 0.2, ">= 2"),
    ]
    assert measured(rows, tmp_path / "read.json", monkeypatch) == 1
    text = made([READ], tmp_path)
    assert "**2 of 3 figures hold.** Short of the target (bold in the table): read 1." in text
    held, missed = cells_of(text, "ours / numpy"), cells_of(text, "seconds / 2")
    assert held[:6] == ["ours / numpy", "1", "2", "0.5", "<= 0.6", "yes"]
    assert held[6] == table.with_version("numpy") != "numpy"
    assert missed[:7] == ["**seconds / 2**", "3", "2", "**1.5**", "<= 1", "**no**", ""]
    assert cells_of(text, "accuracy / popularity")[5] == "yes"


def test_what_is_short_of_its_target_is_explained(tmp_path, monkeypatch):
    rows = [Row("seconds / 2", 3.0, 2.0, "<= 1"), Row("bytes / 2", 3.0, 2.0, "<= 1")]
    rows += [Row("minutes / 2", 3.0, 2.0, "<= 1"), Row("seconds / 9", 3.0, 9.0, "<= 1")]
    measured(rows, tmp_path / "read.json", monkeypatch)
    text = made([READ], tmp_path, {"^(seconds|minutes)": "The clock is slow."})
    assert "- seconds / 2; minutes / 2: The clock is slow." in text
    assert "- bytes / 2: Not explained." in text


def test_what_could_not_be_measured_does_not_hold(tmp_path, monkeypatch):
    rows = [Row("ours / nothing", 1.0, 0.0, "<= 1"), Row("nothing / ours", float("nan"), 1, ">= 1")]
    assert measured(rows, tmp_path / "read.json", monkeypatch) == 1
    assert "**0 of 2 figures hold.**" in made([READ], tmp_path)


def test_a_family_shares_a_line_and_holds_only_whole(tmp_path, monkeypatch):
    rows = [Row(f"k {k}", r, 1.0, "<= 0.4", family="search") for k, r in enumerate((0.3, 0.5, 0.1))]
    rows.append(Row("k 9", 0.5, 1.0, "<= 0.6", family="search"))  # another target: another line
    measured(rows, tmp_path / "read.json", monkeypatch)
    text = made([READ], tmp_path)
    assert "**1 of 2 figures hold.**" in text
    assert cells_of(text, "**search**")[3:6] == ["**0.1 to 0.5**", "<= 0.4", "**2 of 3**"]
    assert cells_of(text, "| search |")[1:6] == ["0.5", "1", "0.5", "<= 0.6", "yes"]


def test_a_benchmark_without_results_is_named(tmp_path, monkeypatch):
    assert measured([Row("a", 1, 1, "<= 1")], tmp_path / "read.json", monkeypatch) == 0
    text = made([READ, FIT], tmp_path)
    assert "Not measured: fit." in text
    assert cells_of(text, "Fitting time.")[1] == "not measured"
    assert "`bench_fit.py`" in text


def test_a_benchmark_replaces_only_its_own_rows(tmp_path, monkeypatch):
    out = tmp_path / "bench" / "read.json"  # the folder is made
    measured([Row("reading", 1, 1, "<= 1")], out, monkeypatch)
    measured([Row("old fit", 1, 1, "<= 1")], out.with_name("fit.json"), monkeypatch)
    measured([Row("new fit", 1, 1, "<= 1")], out.with_name("fit.json"), monkeypatch)
    text = made([READ, FIT], out.parent)
    assert "reading" in text
    assert "new fit" in text
    assert "old fit" not in text


def test_every_benchmark_is_known_to_the_page(tmp_path):
    names = {path.name for path in [*FOLDER.glob("bench_*.py"), *FOLDER.glob("soak.py")]}
    known = page.scripts()
    assert {script.path.name for script in known} == names
    assert [script.path.name for script in known if not script.about] == []
    text = made(known, tmp_path)
    assert [name for name in names if f"`{name}`" not in text] == []


def test_any_benchmark_that_comes_is_taken(tmp_path):
    for name in ("bench_zoo.py", "soak.py", "bench_read.py", "table.py"):
        (tmp_path / name).write_text(f'"""About {name}."""', encoding="utf-8")
    assert [script.name for script in page.scripts(tmp_path)] == ["read", "soak", "zoo"]


def test_peers_stand_side_by_side_even_without_figures(tmp_path, monkeypatch):
    peers = Script(FOLDER / "bench_peers.py", "peers", "Peers.")
    assert "Not measured: `bench_peers.py`." in made([peers], tmp_path)
    beside = [
        {"method": "MFDCF", "accuracy@10": 0.22918, "bytes an item": 8.0},
        {"method": "LightFM", "settings": "could not be built"},
    ]
    measured([], tmp_path / "peers.json", monkeypatch, beside)
    text = made([peers], tmp_path)
    assert cells_of(text, "MFDCF")[:5] == ["MFDCF", "0.2292", "", "", "8"]
    assert cells_of(text, "LightFM")[-1] == "could not be built"


def test_the_page_says_when_how_and_on_what(tmp_path, monkeypatch):
    arguments = ["/some/where/bench_read.py", "--quick", "--data", "/my/data", "--out", "x.json"]
    measured([Row("a|b", 1, 1, "<= 1")], tmp_path / "read.json", monkeypatch, None, arguments)
    facts = json.loads((tmp_path / "read.json").read_text(encoding="utf-8"))
    text = made([READ], tmp_path)
    assert cells_of(text, "a\\|b")[-1] == "`bench_read.py --quick --data DIR`"
    assert "(`--quick`), which the targets are not meant for: read." in text
    for known in (facts["date"], facts["machine"], facts["python"], f"numpy {facts['numpy']}"):
        assert known in text
    assert "/my" not in text + json.dumps(facts)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--data=/my/data", "--out=x"], "a.py --data DIR"),
        (["--out", "x", "--seconds", "60"], "a.py --seconds 60"),
        ([], "a.py"),
    ],
)
def test_a_command_is_said_without_folders(given, said):
    assert table.command(["b/a.py", *given]) == said
