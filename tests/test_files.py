"""Files appear whole or not at all, and what killed processes leave is removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coldhash.errors import SettingError, SourceError
from coldhash.files import ABANDONED, draft_folder, lock_file, open_regular, replace_file

KILLED = """
import os, sys
from pathlib import Path
from coldhash.files import draft_folder, replace_file
with (replace_file if sys.argv[2] == "file" else draft_folder)(Path(sys.argv[1])) as draft:
    if sys.argv[2] == "folder":
        (draft / "new").mkdir()
    os._exit(9)
"""


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def make_old(path: Path) -> None:
    then = path.stat().st_mtime - ABANDONED - 60
    os.utime(path, (then, then))


def test_a_block_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), replace_file(path) as file:
        file.write(b"half %d" % (1 // 0))
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_a_link_in_the_place_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "file").symlink_to("victim")
    with replace_file(tmp_path / "file") as file:
        file.write(b"new")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not (tmp_path / "file").is_symlink()


def test_a_writer_may_close_the_file(tmp_path):
    with replace_file(tmp_path / "file") as file:
        file.write(b"new")
        file.close()
    assert (tmp_path / "file").read_bytes() == b"new"


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_the_draft_of_a_killed_process_is_removed_and_no_other(kind, tmp_path):
    path = tmp_path / "out"
    command = [sys.executable, "-c", KILLED, str(path), kind]
    assert subprocess.run(command).returncode == 9
    (left,) = tmp_path.iterdir()
    make_old(left)
    with draft_folder(path) as held:
        make_old(held)
        with replace_file(path) as file:
            file.write(b"new")
        assert names(tmp_path) == sorted([held.name, "out"])
    assert names(tmp_path) == ["out"]


def test_a_lock_is_held_by_one(tmp_path):
    with (
        lock_file(tmp_path / "new" / "lock", "busy"),
        pytest.raises(SettingError, match="busy"),
    ):
        lock_file(tmp_path / "new" / "lock", "busy")
    lock_file(tmp_path / "new" / "lock", "busy").close()


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ".", "missing", "nul\0byte"):
        with pytest.raises(SourceError, match="cannot read"):
            open_regular(tmp_path / name)
