"""Full and read-only disks: told in one line, nothing lost, and once there is room it goes on."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from coldhash import load, read
from coldhash.baselines.controls import Ridge
from coldhash.cli import app
from coldhash.recommender import model_file
from faults.world import fit_of

pytestmark = pytest.mark.slow

COMMANDS = {
    "fit": lambda world, disk: [
        *fit_of(world), "--out", disk / "m.coldhash",
    ],
    "experiment": lambda world, disk: ["experiment", world / "plan.toml", "--out", disk / "e",
                                       "-j", 1, "--quick"],
    "recommend": lambda world, disk: ["recommend", world / "old", "--all", "-k", 2, "--out",
                                      disk / "x.parquet"],
    "prepare": lambda world, disk: ["prepare", "--ratings", world / "r.csv", "--out", disk / "p"],
    "export": lambda world, disk: ["export", world / "old", "--to", "parquet", "--out",
                                   disk / "c.parquet"],
}  # fmt: skip


def check_told(run, reason):
    """A mistake of the machine's is told in one line."""
    assert run.returncode == 2, run.stderr
    assert "Traceback" not in run.stderr
    told = [line for line in run.stderr.splitlines() if "error" in line]  # among bars of progress
    assert len(told) == 1, run.stderr
    assert told[0].startswith("error: cannot write")
    assert reason in told[0]
    assert "hint: " in told[0]


def finished(folder):
    """Return the files that look finished."""
    return [
        p.name for p in folder.rglob("*") if p.is_file() and p.suffix in (".parquet", ".coldhash")
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_told_and_with_room_it_goes_on(name, world, full_disk):
    arguments = COMMANDS[name](world, full_disk.folder)
    run = full_disk.command(*arguments)
    check_told(run, "File too large" if full_disk.limit is not None else "No space left on device")
    assert not finished(full_disk.folder)
    if full_disk.limit is None:
        assert {p.name for p in full_disk.folder.iterdir()} <= {"filling", "e", "p"}, (
            "a draft is left"
        )
        (full_disk.folder / "filling").unlink()
        subprocess.run(["mount", "-o", "remount,size=10m", str(full_disk.folder)], check=True)
    app(list(map(str, arguments)), standalone_mode=False)
    assert finished(full_disk.folder)
    for path in full_disk.folder.rglob("*.parquet"):
        assert pq.read_table(path).num_rows
    for path in full_disk.folder.rglob("*.coldhash"):
        load(path)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_read_only_disk_is_told(name, world, read_only_disk):
    run = read_only_disk.command(*COMMANDS[name](world, read_only_disk.folder))
    check_told(run, "Read-only file system")


NOWHERE = """
for place in $(awk '{print $5}' /proc/self/mountinfo); do
    case $place in /proc*|/sys*|/dev*) ;; *) mount -o remount,ro,bind "$place" ;; esac
done
if touch "$0.writable" 2>/dev/null; then exit 77; fi
exec "$@"
"""


@pytest.fixture
def ridge(tmp_path):
    """Write a model without codes: it needs few compiled functions, which are compiled here."""
    Ridge().fit(read("sample", n_users=100, n_items=50)).save(tmp_path / "ridge")
    return tmp_path / "ridge"


def test_where_nothing_can_be_written_a_model_still_answers(ridge, tmp_path):
    """Compiled code cannot be cached: it is compiled again."""
    (tmp_path / "nowhere.sh").write_text(NOWHERE, encoding="utf-8")
    arguments = ["recommend", str(ridge), "--user", '{"age": 30}', "-k", "3"]
    command = [sys.executable, "-m", "coldhash", *arguments]
    try:
        run = subprocess.run(
            ["unshare", "--mount", "sh", str(tmp_path / "nowhere.sh"), *command],
            capture_output=True,
            encoding="utf-8",
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "never")},
        )
    except OSError:
        pytest.skip("unshare is not here")
    if run.returncode == 77 or "unshare:" in run.stderr:
        pytest.skip("no file systems of one's own can be made here")
    assert run.returncode == 0, run.stderr
    expected = load(ridge).recommend({"age": 30}, k=3)
    assert [line.split("\t")[2] for line in run.stdout.splitlines()] == expected.item_ids[0]


def test_compiled_code_that_does_not_fit_on_the_disk_is_used_all_the_same(ridge, full_disk):
    script = """
import sys
from coldhash import load
print(*load(sys.argv[1]).recommend({"age": 30}, k=3).item_ids[0])
"""
    if full_disk.limit is not None:
        pytest.skip("no disk can be mounted here")
    run = subprocess.run(
        [sys.executable, "-c", script, str(ridge)],
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"NUMBA_CACHE_DIR": str(full_disk.folder)},
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == load(ridge).recommend({"age": 30}, k=3).item_ids[0]


def test_a_draft_in_somebodys_hands_is_not_abandoned(tmp_path):
    """However old the clock says it is."""
    draft = tmp_path / ".m.0123abcd.part"
    draft.mkdir()
    handle = os.open(draft, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.utime(draft, (1e9, 1e9))
        model_file.write(tmp_path / "m", {}, {})
        assert draft.exists()
    finally:
        os.close(handle)
    model_file.write(tmp_path / "m", {}, {})
    assert not draft.exists()
